-- Decides takes on one sliding log each, in the order of KEYS and in one step.
-- KEYS: the logs. ARGV: for each log the ids of its takes, 8 bytes each, and behind them their cost in 4 bytes unless
-- it is 1; then the quota, the window (us) and the TTL of a log (ms).
-- Reply, for each log: -(used * (window + 1) + reset + 1) if its takes are admitted, or denied until reset, as used is
-- the quota; or else how many are admitted, used, reset and how long the next must wait.
-- include clock
-- include log
local n = #KEYS
local quota, window, ttl = ARGV[n + 1] + 0, ARGV[n + 2] + 0, ARGV[n + 3] + 0
local reply, r, leaving = {}, 0, false -- leaving: whether the last log had expired entries, as the next mostly has then
local cut, future -- the latest instant that has expired, as text; what was recorded before the clock was set back
local log -- the functions of log.lua, when they are needed

-- decide is for any takes and logs. It returns the number that is the whole reply, below zero, or nil; and an error.
local function decide(key, asked)
  log = log or newLog()
  local ids, cost = asked, 1
  if #asked % 8 ~= 0 then ids, cost = asked:sub(1, -5), struct.unpack('>I4', asked, #asked - 3) end
  local takes, s = #ids / 8, log.look(key, window)
  local room = math.floor((quota - s.units) / cost)
  if room < takes and log.rewound(s) then return decide(key, asked) end
  local admitted, used, wait = takes, s.units, 0
  if room < takes then
    admitted = math.min(math.max(room, 0) + log.countOwn(s, ids, cost), takes)
    ids = ids:sub(1, 8 * admitted)
  end
  if admitted > 0 or log.isLate(s) then
    local failed = log.record(s, ids, cost, ttl)
    if failed then return nil, failed end
    used = s.units - admitted * cost
  end
  if admitted == takes and used < quota then
    return used * (window + 1) + log.reset(s, s.oldest) + 1
  elseif admitted < takes and cost <= quota then
    wait = log.wait(s, s.units + cost - quota)
    if not wait then return decide(key, asked) end
  end
  reply[r + 1], reply[r + 2], reply[r + 3], reply[r + 4] = admitted, used, log.reset(s, s.oldest), wait
  r = r + 4
end

for k = 1, n do
  local key, id, told, failed = KEYS[k], ARGV[k], nil, nil -- told: the number that decide returns
  -- Most takes are decided here, without a call of a function: those of one unit, on a log that has no others, and one
  -- take of more, if none has expired and there is room.
  if #id == 8 then
    local size, removed, left = call('ZCARD', key), 0, window
    if leaving and size > 0 and size <= atOnce then
      removed = call('ZREMRANGEBYSCORE', key, '1', cut)
      leaving, size = removed > 0, size - removed
    end
    if size > 0 then
      local oldest = call('ZRANGE', key, '0', '0', 'WITHSCORES')
      left = oldest[2] - now + window
      if oldest[1] == '' then
        left = 0
        if removed > 0 then newLog().recount(key) end
      elseif left <= 0 and size <= atOnce then
        cut, leaving = cut or text(now - window), true
        size = size - call('ZREMRANGEBYSCORE', key, '1', cut)
        left = size == 0 and window or call('ZRANGE', key, '0', '0', 'WITHSCORES')[2] - now + window
      end
    end
    if left <= 0 or left > window then
      -- It is for decide: there are units in '', many expired entries, or some of the future.
    elseif size < quota then
      if call('ZADD', key, 'NX', stamp, id) == 0 then size = size - 1 end
      told = size * (window + 1) + left + 1
      -- With more than a unit a second it is cheaper to look at the TTL than to renew it each time.
      if size * 1000000 <= window or call('PTTL', key) < ttl - 900 then
        local armed = redis.pcall('PEXPIRE', key, ttl)
        if armed ~= 1 then
          if size == 0 then call('UNLINK', key) end -- without a TTL the entry would never leave
          return armed
        end
      end
    elseif size == quota and not call('ZSCORE', key, id) then
      future = future or '(' .. text(now + 1000000) -- see log.lua
      if call('ZCOUNT', key, future, '+inf') == 0 then told = size * (window + 1) + left + 1 end
    end
  elseif #id == 12 then
    local two, cost = call('ZRANGE', key, '0', '1', 'WITHSCORES'), struct.unpack('>I4', id, 9)
    local units, left = -(two[2] or 0), (two[4] or 0) - now + window
    if left > 0 and left <= window and two[1] == '' and units > 0 and units + cost <= quota then
      -- One command for both: LT leaves an entry that is there alone, since that has an earlier stamp.
      local added = call('ZADD', key, 'LT', stamp, id, -units - cost, '')
      if added == 0 then
        call('ZADD', key, -units, '')
        units = units - cost
      elseif call('PTTL', key) < ttl - 900 then
        call('PEXPIRE', key, ttl)
      end
      told = units * (window + 1) + left + 1
    end
  end
  if not told then told, failed = decide(key, id) end
  if failed then return failed end
  if told then
    r = r + 1
    reply[r] = -told
  end
end
return reply
