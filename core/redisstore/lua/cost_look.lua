-- Looks at a log with weights, for one limit.
-- Expects key, head, window, call, now, far, many. Provides i, left and sign as one_look does; held, at least as many
-- units as there are without expired entries; sum, of all weights, and gone, those of expired entries outside packs;
-- entries, how many there are with expired ones; oldest, two of them; opened, the score up to which entries have
-- expired, or nil.
local sum, gone, entries = head[4] * 2 ^ 80, 0, call('ZCOUNT', key, '1', '+inf')
local oldest = entries == 0 and {} or call('ZRANGE', key, -entries, entries > 1 and 1 - entries or -1, 'WITHSCORES')
local i, sign, held, left, opened = 1, 1, entries, oldest[2] and oldest[2] - far - now + window or window, nil
if left > window then
  sign = 0
elseif left <= 0 then
  opened = now + far - window
  local weights = call('ZRANGEBYSCORE', key, '0.4', opened * 2 ^ -53, 'LIMIT', '0', '200')
  for w = 1, #weights do gone = gone + struct.unpack('>I4', weights[w], 9) end
  held = entries - math.max(#weights, 1)
  -- Where many have expired, decide removes some of them only.
  local several = oldest[4] and oldest[4] - opened <= 0
  if #weights == 200 or several and call('ZCOUNT', key, '1', opened) > many then sign = 0 end
end
held = held + sum - gone
