-- One request against one log, in one step.
--
-- KEYS[1]  the log: a sorted set with a member for each admitted unit, scored with the
--          server's clock in whole microseconds
-- ARGV     1 id (8 bytes)   2 cost   3 keep (us)   4 ttl (ms)   5 "1" to record, "0" to peek
--          6 keep as 6 bytes, where other takes may have another one, else ""
--          then quota and window (us) of each limit
-- Reply    wait, then used and reset of each limit; times in us.
--          wait 0: admitted. More: denied for so long. -1: denied, and no wait helps.
--
-- What counts here is the number of calls: each costs more than the work it does.
local key, id, cost, call = KEYS[1], ARGV[1], ARGV[2] + 0, redis.call

-- The stamp is text made of text: "..", tostring and %.14g would lose its last digits.
local time = call('TIME')
local micros = time[2]
if #micros < 6 then micros = ('00000' .. micros):sub(-6) end
local stamp = time[1] .. micros
local now = stamp + 0

local function scoreAt(rank)
  return call('ZRANGE', key, rank, rank, 'WITHSCORES')[2] + 0
end

-- A limit denies while the entry that must leave for it is inside its window: with quota 5
-- and cost 1 that is the fifth newest.
local size = call('ZCARD', key)
local wait, never, future, leaving = 0, false, false, nil
for i = 7, #ARGV, 2 do
  local room = ARGV[i] - cost
  if room < 0 then
    never = true
  elseif size > room then
    leaving = scoreAt(-room - 1)
    if leaving > now then future, leaving = true, now end
    local rest = leaving + ARGV[i + 1] - now
    if rest > wait then wait = rest end
  end
end
if never then wait = -1 end

-- What the log of so many entries says, the first of them from oldest; own is the instant of
-- this very take if it is among them.
local function answer(entries, oldest, own)
  local reply = {wait}
  for i = 7, #ARGV, 2 do
    local window = ARGV[i + 1] + 0
    local cut = now - window
    local used, first, reset = entries, oldest, 0
    if entries > 0 and oldest <= cut then
      used = call('ZCOUNT', key, cut + 1, '+inf')
      first = used > 0 and scoreAt(-used)
    end
    if used > 0 then reset = math.min(first - cut, window) end
    if own and own > cut then used = used - cost end
    reply[i - 5], reply[i - 4] = used, reset
  end
  return reply
end

if ARGV[5] == '0' then return answer(size, size > 0 and scoreAt('0')) end

-- Takes with a short window must not drop what one with a longer window will ask for. So in a log
-- where windows vary each entry carries the longest so far, and hands it on.
local keep, ttl, mark = ARGV[3] + 0, ARGV[4], ARGV[6]
if mark ~= '' then
  if size > 0 then
    local newest, longest = call('ZRANGE', key, '-1', '-1')[1]:sub(9, 14), 0
    if #newest == 6 then -- else it was recorded when windows did not vary
      for i = 1, 6 do longest = longest * 256 + newest:byte(i) end
    end
    if longest > keep then
      mark, keep, ttl = newest, longest, math.floor(longest / 1000) + 1000
    end
  end
  id = id .. mark
end

-- Entries from the future are left by a clock that has stepped back, as in a
-- failover. Brought to the present they leave in one window at most.
local function repair()
  local late = call('ZRANGEBYSCORE', key, '(' .. stamp, '+inf')
  for i = 1, #late do call('ZADD', key, 'XX', stamp, late[i]) end
  if #late > 0 then call('PEXPIRE', key, ttl) end
end

-- ZADD comes first: where memory is short it is refused before anything has changed.
if wait ~= 0 or call('ZADD', key, 'NX', stamp, id) == 0 then
  -- A client that lost the reply sends the command again, and the log may be full of itself.
  local own = call('ZSCORE', key, id)
  if own then
    wait = 0
    return answer(size, scoreAt('0'), own + 0)
  end
  if future then repair() end
  -- With one limit the entry that must leave is mostly the first one: no need to ask again.
  if #ARGV > 8 or not leaving or size > ARGV[7] - cost + 1 then leaving = size > 0 and scoreAt('0') end
  return answer(size, leaving)
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
local armed = redis.pcall('PEXPIRE', key, ttl)
if type(armed) == 'table' and armed.err then
  if size == 0 then call('UNLINK', key) end -- rather no entry than one that never leaves
  return armed
end
if size == 0 then return answer(cost, now, now) end
size = size + cost - call('ZREMRANGEBYSCORE', key, '-inf', now - keep)
local oldest = scoreAt('0')
if size > cost and oldest >= now then repair() end -- none of the others is earlier
return answer(size, oldest, now)
