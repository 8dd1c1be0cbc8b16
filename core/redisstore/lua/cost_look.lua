-- Looks at a log with weights, for one limit.
-- Expects key, head, window, call, now, far. Provides i, left and sign as one_look does; held, at least as many units
-- as there are without expired entries; sum, of all weights, and gone, those of expired entries outside packs; entries,
-- how many there are with expired ones; first, the two oldest; opened, the score up to which entries have expired, or
-- nil.
local sum, gone, entries = head[4] * 2 ^ 80, 0, call('ZCOUNT', key, '1', '+inf')
local first = call('ZRANGEBYSCORE', key, '1', '+inf', 'WITHSCORES', 'LIMIT', '0', '2')
local i, sign, held, left, opened = 1, 1, entries, first[2] and first[2] - far - now + window or window, nil
if left > window then
  sign = 0
elseif left <= 0 then
  opened = now + far - window
  local weights = call('ZRANGEBYSCORE', key, '0.4', opened * 2 ^ -53, 'LIMIT', '0', '200')
  for w = 1, #weights do gone = gone + struct.unpack('>I4', weights[w], 9) end
  held, sign = entries - math.max(#weights, 1), #weights < 200 and 1 or 0
end
held = held + sum - gone
