-- A log is a sorted set of what one key was admitted in one window. Its members and their scores:
--   id             stamp    an entry of one unit: the 8 bytes of a take's id, and when it was recorded (us since 1970)
--   id, cost       stamp    an entry of more units: 4 bytes more
--   id, 0, cost?   stamp    a denial that was counted: a byte 0 behind the id
--   ''             -units   how many units the entries have. It is there once an entry has had more than one.
-- An entry that was recorded one window ago has expired. It stays, and counts in -units, until a take removes it.
-- A command takes 0.4 to 0.9 us; a score as text, a number as an argument, and a call of a function 0.1 to 0.3 us.
local atOnce = 2000 -- so many members are read or removed in about a millisecond

-- newLog returns the functions for logs. Scripts make them when they are needed, which takes as long as some commands.
local function newLog()
  local log, call = {}, call
  local reach = 0 -- how many members look reads, less one: as many as it needed for the last log

  -- What is later than that was recorded before the clock was set back. Smaller steps may be corrections of the clock.
  log.future = '(' .. text(now + 1000000)

  local function costOf(member) return #member < 12 and 1 or struct.unpack('>I4', member, #member - 3) end

  local function memberOf(id, cost) return cost == 1 and id or id .. struct.pack('>I4', cost) end

  -- sum returns how many units some entries have, from one rank on.
  local function sum(key, rank, last)
    local units = 0
    for from = rank, last, atOnce do
      local page = call('ZRANGE', key, from, math.min(from + atOnce - 1, last))
      for i = 1, #page do units = units + costOf(page[i]) end
    end
    return units
  end

  -- recount sums the units of a log anew, and writes them.
  local function recount(key)
    local units = sum(key, 1, call('ZCARD', key))
    if units == 0 then call('UNLINK', key) else call('ZADD', key, -units, '') end
  end

  -- look returns the state of a log, which the functions below keep: how many units are in the window; when the oldest
  -- was recorded, or nil; whether the log counts its units in ''; how many entries have expired, and how many units
  -- these have. It corrects '' if that has no units.
  function log.look(key, window)
    local units, found, first, i, expired, gone = call('ZCARD', key), {}, 0, 2, 0, 0
    if units > 0 then found = call('ZRANGE', key, '0', reach, 'WITHSCORES') end
    local counted = found[1] == ''
    if counted then
      units, first, i = -found[2], 1, 4 -- first: the rank of the first entry
      if units <= 0 then return log.look(recount(key) or key, window) end
    end
    while found[i] and found[i] + window <= now do
      expired, gone, i = expired + 1, gone + costOf(found[i - 1]), i + 2
    end
    reach = first + math.min(expired, 2)
    local oldest = found[i]
    if units > 0 and not oldest then
      expired = call('ZCOUNT', key, '1', text(now - window))
      oldest = call('ZRANGE', key, first + expired, first + expired, 'WITHSCORES')[2]
      gone = not oldest and units or counted and sum(key, 1, expired) or expired
    end
    units = units - gone
    return {key = key, window = window, units = units, oldest = oldest, counted = counted, expired = expired,
      gone = gone}
  end

  -- record removes what has expired, and adds entries of one cost, one for each id, unless the log has them. It returns
  -- an error, with nothing recorded, or nil.
  function log.record(s, ids, cost, ttl)
    local key = s.key
    if s.expired > 0 and not s.oldest then
      call('UNLINK', key)
      s.counted, s.expired, s.gone = false, 0, 0
    elseif s.expired > 0 then
      local last = (s.counted or cost > 1) and s.expired or math.min(s.expired, atOnce)
      call('ZREMRANGEBYRANK', key, s.counted and '1' or '0', s.counted and last or last - 1)
      s.expired = s.expired - last
    end
    local added, written = 0, not s.counted and cost == 1 -- written: whether '' is right
    if #ids > 9 then
      local members = {}
      for i = 1, #ids, 8 do
        members[#members + 1], members[#members + 2] = stamp, memberOf(ids:sub(i, i + 7), cost)
      end
      added = call('ZADD', key, 'NX', unpack(members))
    elseif s.counted and cost > s.gone and ids ~= '' then
      -- One command for both: LT leaves an entry that is there alone, since that has an earlier stamp.
      added = call('ZADD', key, 'LT', stamp, memberOf(ids, cost), -s.units - cost, '')
      written = added == 1
    elseif ids ~= '' then
      added = call('ZADD', key, 'NX', stamp, memberOf(ids, cost))
    end
    s.units, s.oldest, s.counted, s.gone = s.units + added * cost, s.oldest or stamp, s.counted or cost > 1, 0
    if not written then call('ZADD', key, -s.units, '') end
    return arm(key, ttl)
  end

  -- isLate reports whether a denial should remove what has expired as well: the next ones would sum it up again.
  function log.isLate(s) return s.counted and s.expired > 100 and s.units > 0 end

  -- reset returns how long it takes until an entry leaves.
  function log.reset(s, at) return at and math.min(at - now, 0) + s.window or 0 end

  -- wait returns how long it takes until so many units have left. It returns nil if there are fewer: then '' was wrong,
  -- which it corrects.
  function log.wait(s, units)
    if units <= 1 then return log.reset(s, s.oldest) end
    local rank, size = s.expired + 1, s.counted and 16 or 1
    if not s.counted then rank, units = rank + units - 2, 1 end
    repeat
      local page = call('ZRANGE', s.key, rank, rank + size - 1)
      for i = 1, #page do
        units = units - costOf(page[i])
        if units <= 0 then return log.reset(s, call('ZSCORE', s.key, page[i])) end
      end
      rank, size = rank + size, math.min(4 * size, atOnce)
    until not page[1]
    recount(s.key)
  end

  -- rewound removes what was recorded before the clock was set back, so that no denial is longer than the window and a
  -- second. It reports whether there was something.
  function log.rewound(s)
    local some = call('ZCOUNT', s.key, log.future, '+inf') > 0 and call('ZREMRANGEBYSCORE', s.key, log.future, '+inf')
    if some and s.counted then recount(s.key) end
    return some
  end

  -- countOwn returns how many takes of a group, from the first on, were recorded before: the server got them twice.
  function log.countOwn(s, ids, cost)
    for i = 1, #ids, 8 do
      local at = call('ZSCORE', s.key, memberOf(ids:sub(i, i + 7), cost))
      if not at or at + s.window <= now then return (i - 1) / 8 end
    end
    return #ids / 8
  end

  log.costOf, log.memberOf, log.recount = costOf, memberOf, recount
  return log
end
