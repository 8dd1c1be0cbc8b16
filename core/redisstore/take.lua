-- One request against one log, in one step.
--
-- KEYS[1]  the log: a sorted set with a member for each admitted unit, scored with the
--          server's clock in whole microseconds
-- ARGV     1 id (8 bytes)   2 cost   3 keep (us)   4 ttl (ms)   5 "1" to record, "0" to peek
--          6 keep as 6 bytes, where other takes may have another one, else ""
--          then quota and window (us) of each limit
-- Reply    wait, then used and reset of each limit; times in us.
--          wait 0: admitted. More: denied for so long. -1: denied, and no wait helps.
local key, id, cost, keep, ttl = KEYS[1], ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), ARGV[4]
local call, floor, min = redis.call, math.floor, math.min

-- The stamp is text made of text: "..", tostring and %.14g would lose its last digits.
local t = call('TIME')
local stamp = t[1] .. ('00000' .. t[2]):sub(-6)
local now = tonumber(stamp)

local function scoreAt(rank)
  return tonumber(call('ZRANGE', key, rank, rank, 'WITHSCORES')[2])
end

local size = call('ZCARD', key)
local oldest = size > 0 and scoreAt('0')
local own -- the instant of this very take, if it was executed before

local function look()
  local reply, wait, never = {0}, 0, false
  for i = 7, #ARGV, 2 do
    local quota, window = tonumber(ARGV[i]), tonumber(ARGV[i + 1])
    local cut = now - window
    local used, first = size, oldest
    if size > 0 and oldest <= cut then
      used = call('ZCOUNT', key, cut + 1, '+inf')
      first = used > 0 and scoreAt(-used)
    end
    local held = used
    if own and own > cut then used = used - cost end
    local over = used + cost - quota
    if cost > quota then
      never = true
    elseif over > 0 then
      local leaving = over == 1 and first or scoreAt(over - 1 - held)
      wait = math.max(wait, min(leaving + window - now, window))
    end
    reply[#reply + 1] = used
    reply[#reply + 1] = held > 0 and min(first + window - now, window) or 0
  end
  reply[1] = never and -1 or wait
  return reply
end

-- Entries from the future are left by a clock that has stepped back, as in a
-- failover. Brought to the present they leave in one window at most.
local function repair()
  local future = call('ZRANGEBYSCORE', key, '(' .. stamp, '+inf')
  for i = 1, #future do call('ZADD', key, 'XX', stamp, future[i]) end
  if #future > 0 then call('PEXPIRE', key, ttl) end
end

local function replayed()
  own = tonumber(call('ZSCORE', key, id) or nil)
  if not own then return nil end
  local reply = look()
  reply[1] = 0
  return reply
end

local recording = ARGV[5] == '1'

-- Takes with a short window must not drop what one with a longer window will ask for. So in a log
-- where windows vary each entry carries the longest so far, and hands it on.
local mark = ARGV[6]
if mark ~= '' then
  if size > 0 then
    local newest = call('ZRANGE', key, '-1', '-1')[1]:sub(9, 14)
    if newest > mark then
      mark, keep = newest, 0
      for i = 1, 6 do keep = keep * 256 + mark:byte(i) end
      ttl = floor(keep / 1000) + 1000
    end
  end
  id = id .. mark
end

local reply = look()
if reply[1] ~= 0 then
  if not recording then return reply end
  -- A client that lost the reply sends the command again: the log may be full of itself.
  local again = replayed()
  if again then return again end
  repair()
  return reply
end
if not recording then return reply end

-- ZADD comes first: where memory is short it is refused before anything has changed.
if call('ZADD', key, 'NX', stamp, id) == 0 then return replayed() end
if cost > 1 then
  local batch, n = {}, 0
  for i = 1, cost - 1 do
    batch[n + 1], batch[n + 2] = stamp, id .. string.char(floor(i / 256), i % 256)
    n = n + 2
    if n == 2000 or i == cost - 1 then -- unpack has room for some thousands
      call('ZADD', key, unpack(batch, 1, n))
      n = 0
    end
  end
end
local armed = redis.pcall('PEXPIRE', key, ttl)
if type(armed) == 'table' and armed.err then
  if size == 0 then call('UNLINK', key) end -- rather no entry than one that never leaves
  return armed
end
if size > 0 then
  if oldest <= now - keep then
    call('ZREMRANGEBYSCORE', key, '-inf', now - keep)
  elseif oldest > now then
    repair()
  end
end
for i = 7, #ARGV, 2 do
  local n = i - 5
  if reply[n] == 0 then reply[n + 1] = tonumber(ARGV[i + 1]) end
end
return reply
