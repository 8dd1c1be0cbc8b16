-- A log is a sorted set of what one key was admitted in one window. Its members and their scores:
--   id             stamp    an entry of one unit: the 8 bytes of a take's id, and when it was recorded (us since 1970)
--   id, cost       stamp    an entry of more units: 4 bytes more
--   id, 0, cost?   stamp    a denial that was counted: a byte 0 behind the id
--   ''             -units   how many units the entries have. It is there once an entry has had more than one.
-- An entry that was recorded one window ago has expired. It stays, and counts in -units, until a take removes it.
local call = redis.call
local time = call('TIME')
local stamp = time[1] .. ('00000' .. time[2]):sub(-6) -- as text: a number as an argument costs 0.3 us
local now = stamp + 0
local atOnce = 2000 -- so many members are read or removed in about a millisecond

-- text writes an instant as '%.0f' does, but in a fraction of the time.
local function text(n) return string.format('%d%09d', (n - n % 1e9) / 1e9, n % 1e9) end

-- What is later than that was recorded before the clock was set back. Smaller steps may be corrections of the clock.
local future = '(' .. text(now + 1000000)

local function costOf(member) return #member < 12 and 1 or struct.unpack('>I4', member, #member - 3) end

local function memberOf(id, cost) return cost == 1 and id or id .. struct.pack('>I4', cost) end

-- recount sums the units of a log anew, and writes them.
local function recount(key)
  local units, rank = 0, 1
  repeat
    local page = call('ZRANGE', key, rank, rank + atOnce - 1)
    for i = 1, #page do units = units + costOf(page[i]) end
    rank = rank + #page
  until #page == 0
  if units == 0 then call('UNLINK', key) else call('ZADD', key, -units, '') end
end

-- look returns what a log holds in the window: its units; when the oldest entry was recorded, or nil; whether the log
-- counts its units in ''; how many entries have expired.
local function look(key, window)
  local two = call('ZRANGE', key, '0', '1', 'WITHSCORES')
  local counted = two[1] == ''
  local oldest = two[counted and 4 or 2]
  if not oldest then return 0, nil, counted, 0 end
  local units = counted and -two[2] or call('ZCARD', key)
  if oldest + window > now then return units, oldest, counted, 0 end
  if not counted and two[4] and two[4] + window > now then return units - 1, two[4], false, 1 end
  local cut, expired, gone = text(now - window), 0, 0
  if not counted then
    expired = call('ZCOUNT', key, '-inf', cut)
    gone = expired
  else
    repeat
      local page = call('ZRANGE', key, '1', cut, 'BYSCORE', 'LIMIT', expired, atOnce)
      for i = 1, #page do gone = gone + costOf(page[i]) end
      expired = expired + #page
    until #page < atOnce or call('ZRANGE', key, '-1', '-1', 'WITHSCORES')[2] + window <= now
  end
  local rank = counted and expired + 1 or expired
  oldest = #two > 2 and call('ZRANGE', key, rank, rank, 'WITHSCORES')[2]
  if oldest and oldest + window > now then return units - gone, oldest, counted, expired end
  return 0, nil, counted, expired
end

-- arm sets the TTL of a log that was written to. It returns an error or nil.
local function arm(key, ttl, isNew)
  local left = isNew and -1 or call('PTTL', key)
  local armed = left >= ttl - 900 and 1 or redis.pcall('PEXPIRE', key, ttl)
  if armed == 1 then return nil end
  if left < 0 then call('UNLINK', key) end -- without a TTL the entries would never leave
  return armed
end

-- record removes what has expired, and adds entries of one cost, one for each id, unless the log has them. It expects
-- what look returns, and returns this as it is then; or nil and an error, with nothing recorded.
local function record(key, ids, cost, ttl, units, oldest, counted, expired)
  if units == 0 and (expired > 0 or counted) then
    call('UNLINK', key)
    counted, expired = false, 0
  elseif expired > 0 then
    local last = (counted or cost > 1) and expired or math.min(expired, atOnce)
    call('ZREMRANGEBYRANK', key, counted and '1' or '0', counted and last or last - 1)
    expired = expired - last
  end
  local added = 0
  if #ids == 8 or #ids == 9 then
    added = call('ZADD', key, 'NX', stamp, memberOf(ids, cost))
  elseif ids ~= '' then
    local members = {}
    for i = 1, #ids, 8 do
      members[#members + 1], members[#members + 2] = stamp, memberOf(ids:sub(i, i + 7), cost)
    end
    added = call('ZADD', key, 'NX', unpack(members))
  end
  local isNew = units == 0
  units = units + added * cost
  if counted or cost > 1 then
    call('ZADD', key, -units, '')
    counted = true
  end
  local failed = arm(key, ttl, isNew)
  if failed then return nil, failed end
  return units, oldest or stamp, counted, expired
end

-- isLate reports whether a denial should remove what has expired as well, or else the next ones would sum it up again.
local function isLate(units, counted, expired) return counted and expired > 100 and units > 0 end

-- reset returns how long it takes until the oldest entry leaves.
local function reset(oldest, window)
  return oldest and math.min(oldest - now, 0) + window or 0
end

-- wait returns how long it takes until so many units have left. It returns nil if there are fewer: then '' was wrong,
-- which it corrects.
local function wait(key, window, units, oldest, counted, expired)
  if units <= 1 or not counted then
    local rank = expired + units - 1
    return reset(units <= 1 and oldest or call('ZRANGE', key, rank, rank, 'WITHSCORES')[2], window)
  end
  local rank, size = expired + 1, 8
  repeat
    local page = call('ZRANGE', key, rank, rank + size - 1, 'WITHSCORES')
    for i = 1, #page, 2 do
      units = units - costOf(page[i])
      if units <= 0 then return reset(page[i + 1], window) end
    end
    rank, size = rank + size, math.min(4 * size, atOnce)
  until #page == 0
  recount(key)
end

-- rewound removes what was recorded before the clock was set back, so that no denial is longer than the window and a
-- second. It reports whether there was something.
local function rewound(key, counted)
  if counted and call('ZCOUNT', key, future, '+inf') == 0 then return false end
  if call('ZREMRANGEBYSCORE', key, future, '+inf') == 0 then return false end
  if counted then recount(key) end
  return true
end

-- countOwn returns how many takes of a group, from the first on, were recorded before: the server was sent them twice.
local function countOwn(key, ids, cost, window)
  for i = 1, #ids, 8 do
    local at = call('ZSCORE', key, memberOf(ids:sub(i, i + 7), cost))
    if not at or at + window <= now then return (i - 1) / 8 end
  end
  return #ids / 8
end
