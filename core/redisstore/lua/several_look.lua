-- Looks at a log that is not empty, for several limits.
-- Expects key, size, n, limits, reply, r, call, now; quotas, windows, keep, cuts and cut, or cuts nil if they are not
-- known yet. Provides these; the short reply as if the take was added; odd, whether this part does not decide; denied;
-- expired, how many entries have expired.
if not cuts then
  quotas, windows, cuts, keep = {}, {}, {}, 0
  for i = 1, limits do
    local window = ARGV[n + 1 + 2 * i] + 0
    quotas[i], windows[i], keep = ARGV[n + 2 * i] + 0, window, window > keep and window or keep
  end
  cut = string.format('%.0f', now - keep)
end
local oldest, expired = call('ZRANGE', key, '0', '0', 'WITHSCORES')[2] + 0, 0
local odd, denied = oldest == 0, false -- odd: as with one limit
if oldest <= now - keep then
  expired = call('ZCOUNT', key, '-inf', cut)
  oldest = expired < size and call('ZRANGE', key, expired, expired, 'WITHSCORES')[2] + 0
end
for i = 1, limits do
  local window, held, since, sign = windows[i], 0, oldest, 1 -- since: the oldest entry in the window, or false
  if oldest and oldest > now - window then
    held = size - expired
  elseif oldest then
    cuts[i] = cuts[i] or string.format('(%.0f', now - window)
    held = call('ZCOUNT', key, cuts[i], '+inf')
    since = held > 0 and call('ZRANGE', key, -held, -held, 'WITHSCORES')[2] + 0
  end
  odd = odd or held > quotas[i] or since and since > now
  if held == quotas[i] then denied, sign = true, -1 end
  local left = since and since - now + window or window
  reply[r + i] = sign * (held * (window + 1) + left + 1)
end
