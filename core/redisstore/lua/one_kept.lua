-- What follows when no unit was added to a log of one limit that is not full: expired entries do not count.
-- Expects key, window, call, now, and what one_look.lua provides. Changes held and left.
if left <= 0 then
  held = call('ZCOUNT', key, now - window + 1, '+inf')
  left = held > 0 and math.min(call('ZRANGE', key, -held, -held, 'WITHSCORES')[2] - now + window, window) or 0
end
