-- Decides takes on one sliding log each, in the order of KEYS and in one step.
-- KEYS: the logs. ARGV: for each log the ids of its takes, 8 bytes each, and behind them their cost in 4 bytes unless
-- it is 1; then the quota, the window (us) and the TTL of a log (ms).
-- Reply, for each log: used * (window + 1) + reset + 1 if its takes are admitted; the same as a negative number if they
-- are denied and wait until reset; or else a 0, and how many are admitted, used, reset and how long the next must wait.
-- include log
local n = #KEYS
local quota, window, ttl = ARGV[n + 1] + 0, ARGV[n + 2] + 0, ARGV[n + 3] + 0
local reply, r = {}, 0
local cut -- the latest instant that has expired, as text
local leaving = false -- whether the last log had expired entries: then the next one mostly has some as well

-- decide is for any takes and logs.
local function decide(key, asked)
  local ids, cost = asked, 1
  if #asked % 8 ~= 0 then ids, cost = asked:sub(1, -5), struct.unpack('>I4', asked, #asked - 3) end
  local units, oldest, counted, expired = look(key, window)
  local takes, room = #ids / 8, math.floor((quota - units) / cost)
  if room < takes and rewound(key, counted) then
    units, oldest, counted, expired = look(key, window)
    room = math.floor((quota - units) / cost)
  end
  local admitted, left, used = math.max(room, 0), 0, units
  if admitted < takes then admitted = admitted + countOwn(key, ids, cost, window) end
  admitted = math.min(admitted, takes)
  if admitted < takes then ids = ids:sub(1, 8 * admitted) end
  if admitted > 0 or isLate(units, counted, expired) then
    units, oldest, counted, expired = record(key, ids, cost, ttl, units, oldest, counted, expired)
    if not units then return oldest end
    used = units - admitted * cost
  end
  if admitted < takes and cost <= quota then
    left = wait(key, window, units + cost - quota, oldest, counted, expired)
    if not left then return decide(key, asked) end
  end
  reply[r + 1], reply[r + 2], reply[r + 3], reply[r + 4], reply[r + 5] = 0, admitted, used, reset(oldest, window), left
  r = r + 5
end

for k = 1, n do
  local key, id, told = KEYS[k], ARGV[k], nil -- told: the number that is the whole reply
  if #id == 8 then
    -- Most takes are of one unit, on a log that has no others. They are decided here, without a call of a function.
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
        if removed > 0 then recount(key) end
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
      if size == 0 then
        local armed = redis.pcall('PEXPIRE', key, ttl)
        if armed ~= 1 then
          call('UNLINK', key) -- without a TTL the entry would never leave
          return armed
        end
      -- With more than a unit a second it is cheaper to look at the TTL than to renew it each time.
      elseif size * 1000000 <= window or call('PTTL', key) < ttl - 900 then
        call('PEXPIRE', key, ttl)
      end
    elseif size == quota and not call('ZSCORE', key, id) and call('ZREMRANGEBYSCORE', key, future, '+inf') == 0 then
      told = -(size * (window + 1) + left + 1)
    end
  end
  if told then
    r = r + 1
    reply[r] = told
  else
    local failed = decide(key, id)
    if failed then return failed end
  end
end
return reply
