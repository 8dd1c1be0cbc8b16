-- The short path of one limit and a log that is not empty.
-- Expects key, id, size, and what take.lua and clock.lua provide. Provides told and the short reply; cut and leaving
-- where entries have expired.
local oldest = call('ZRANGE', key, '0', '0', 'WITHSCORES')[2]
local i, held, left, sign = 1, size, oldest - now + window, 1
if left > window or size > quota or oldest == '0' then
  -- undecided: an entry from the future, a take settled above the quota, a mark
elseif left > 0 and size == quota then
  told = not call('ZSCORE', key, id)
  sign = -1
elseif call('ZADD', key, 'NX', stamp, id) == 1 then
  told = true
  -- With more than a unit a second it is cheaper to look at the TTL than to renew it each time.
  if size * 1000000 <= window or call('PTTL', key) < plain - 900 then call('PEXPIRE', key, ttl) end
  if left <= 0 then
    cut, leaving = cut or string.format('%.0f', now - window), true -- text: a number costs 0.3 us as an argument
    held = size - call('ZREMRANGEBYSCORE', key, '-inf', cut)
    left = held > 0 and math.min(call('ZRANGE', key, '0', '0', 'WITHSCORES')[2] - now + window, window) or window
  end
end
-- include short_reply
