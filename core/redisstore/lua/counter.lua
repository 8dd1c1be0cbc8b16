-- Decides takes of one limit by another algorithm than the sliding log, in the order of KEYS and in one step.
-- docs/internals.md, "Redis formats", describes KEYS, ARGV, the reply, and what a key holds.
--
-- The common take, one unit to be charged to a fixed window or a token bucket, is decided without a function, as in
-- take.lua. All other takes, and those that the short paths leave undecided, go to the function decide, which is made
-- when it is first needed.
local call = redis.call
local time = call('TIME')
local now = time[1] * 1000000 + time[2]

local n, reply, r = #KEYS, {}, 0
local algorithm, mode, quota, first = ARGV[n + 1], ARGV[n + 2], ARGV[n + 3] + 0, n + 4
local short, upTo, decide = algorithm == 'W' or algorithm == 'T', mode == 'u', nil
-- Of short paths: what the short reply counts up to (us), the window or the time for one unit; how long the window
-- lasts, and the value without units; how far ahead a full bucket is.
local span, left, mark, most = ARGV[first] + 0, 0, 0, 0
if algorithm == 'W' then
  left = span - now % span
  mark = (now + left - span) / span % 80000000 * 100000000
elseif algorithm == 'T' then
  most = quota * span
end

for k = 1, n do
  local key, id, told = KEYS[k], ARGV[k], false -- told: whether a short path has replied
  if algorithm == 'W' and #id == 8 then
    -- Values of other periods are left undecided where the clock may have been set back.
    local value = call('GET', key)
    local units = value and value - mark or 0
    if value and units >= 0 and units < quota then
      call('INCRBY', key, '1')
      reply[r + 1], told = units * (span + 1) + left + 1, true
    elseif units == quota then
      reply[r + 1], told = -(units * (span + 1) + left + 1), true
    elseif not value or units < 0 and units > -4000000000000000 then
      call('SET', key, string.format('%.0f', mark + 1), 'PX', string.format('%.0f', math.ceil(left / 1000) + 1000))
      reply[r + 1], told = left + 1, true
    end
  elseif algorithm == 'T' and #id == 8 then
    -- Units take whole microseconds to come back. A bucket is left undecided that is further from full than it can be,
    -- because it was larger or the clock has been set back.
    local value = call('GET', key)
    local ahead = value and #value == 16 and value - now or 0
    if ahead < 0 then ahead = 0 end
    local units = math.ceil(ahead / span)
    if value and #value > 16 or ahead > most then
      -- undecided
    elseif ahead + span <= most then
      ahead = ahead + span
      call('SET', key, string.format('%.0f', now + ahead), 'PX', string.format('%.0f', math.ceil(ahead / 1000) + 1000))
      reply[r + 1], told = units * (span + 1) + ahead - units * span + 1, true
    else
      reply[r + 1], told = -(units * (span + 1) + ahead - (units - 1) * span + 1), true
    end
  end
  if told then
    r = r + 1
  else
    if not decide then
      local view, till, put
      -- include counter_of
      -- include counter_whole
    end
    if short then
      r = r + 1
      reply[r] = 0 -- not a short reply
    end
    r = decide(key, id, r)
  end
end
return reply
