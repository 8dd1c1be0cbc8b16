-- What follows when a unit was added to a log of one limit: its TTL, and the end of its expired entries.
-- Expects key, ttl, plain, stamp, cut, leaving, and what one_look.lua provides. Changes held, left, cut and leaving.
-- With more than a unit a second it is cheaper to look at the TTL than to renew it each time.
if size * 1000000 <= window or call('PTTL', key) < plain - 900 then call('PEXPIRE', key, ttl) end
if left <= 0 then
  cut, leaving = cut or textOf(now - window), true -- text: a number costs 0.3 us as an argument
  held = size - call('ZREMRANGEBYSCORE', key, '-inf', cut)
  left = held > 0 and math.min(call('ZRANGE', key, '0', '0', 'WITHSCORES')[2] - now + window, window) or window
end
