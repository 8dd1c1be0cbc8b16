-- Looks at a log that is not empty, for one limit.
-- Expects key, size, quota, window, call, now. Provides i, held and left for the short reply; sign: 1 if the log has
-- room, -1 if the limit denies, 0 if this part does not decide.
local oldest = call('ZRANGE', key, '0', '0', 'WITHSCORES')[2]
local i, held, left, sign = 1, size, oldest - now + window, 1
if left > window or size > quota or left + now <= window then
  sign = 0 -- an entry from the future, a take settled above the quota, a mark or a summary
elseif left > 0 and size == quota then
  sign = -1
end
