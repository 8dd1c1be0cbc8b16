-- One request against one log, in one step.
--
-- KEYS[1]  the log: a sorted set with a member for each admitted unit, scored with the
--          server's clock in whole microseconds
-- ARGV     id (8 bytes)   cost   keep (us)   ttl (ms)   1 to record, 0 to peek
--          then quota and window (us) of each limit
-- Reply    wait, then used and reset of each limit; times in us.
--          wait 0: admitted. More: denied for so long. -1: denied, and no wait helps.
local key, id, cost, keep = KEYS[1], ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local call = redis.call

-- The stamp is text made of text: "..", tostring and %.14g would lose its last digits.
local t = call('TIME')
local stamp = t[1] .. ('00000' .. t[2]):sub(-6)
local now = tonumber(stamp)

local function scoreAt(rank)
  return tonumber(call('ZRANGE', key, rank, rank, 'WITHSCORES')[2])
end

local size = call('ZCARD', key)
local oldest = size > 0 and scoreAt(0)
local own -- the instant of this very take, if it was executed before

local function look()
  local reply, wait = {0}, 0
  for i = 6, #ARGV, 2 do
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
    if over > used then
      if wait == 0 then wait = -1 end
    elseif over > 0 then
      local leaving = over == 1 and first or scoreAt(over - 1 - held)
      wait = math.max(wait, math.min(leaving + window - now, window))
    end
    reply[#reply + 1] = used
    reply[#reply + 1] = held > 0 and math.min(first + window - now, window) or 0
  end
  reply[1] = wait
  return reply
end

local reply = look()
local peek = ARGV[5] == '0'

if reply[1] ~= 0 then
  -- A client that lost the reply sends the command again: the log may be full of itself.
  own = not peek and tonumber(call('ZSCORE', key, id) or nil)
  if own then
    reply = look()
    reply[1] = 0
    return reply
  end
  -- Entries from the future are left by a clock that has stepped back, as in a
  -- failover. Brought to the present they leave in one window at most.
  local future = call('ZRANGEBYSCORE', key, '(' .. stamp, '+inf')
  for i = 1, #future do call('ZADD', key, 'XX', stamp, future[i]) end
  if #future > 0 then call('PEXPIRE', key, ARGV[4]) end
  return reply
end
if peek then return reply end

-- ZADD comes first: where memory is short it is refused before anything has changed.
if call('ZADD', key, 'NX', stamp, id) == 0 then
  own = tonumber(call('ZSCORE', key, id))
  reply = look()
  reply[1] = 0
  return reply
end
if cost > 1 then
  local batch, n = {}, 0
  for i = 1, cost - 1 do
    batch[n + 1], batch[n + 2] = stamp, id .. string.char(math.floor(i / 256), i % 256)
    n = n + 2
    if n == 2000 or i == cost - 1 then -- unpack has room for some thousands
      call('ZADD', key, unpack(batch, 1, n))
      n = 0
    end
  end
end
if size > 0 and oldest <= now - keep then
  call('ZREMRANGEBYSCORE', key, '-inf', now - keep)
end
call('PEXPIRE', key, ARGV[4])
for i = 6, #ARGV, 2 do
  local n = i - 4
  if reply[n] == 0 then reply[n + 1] = tonumber(ARGV[i + 1]) end
end
return reply
