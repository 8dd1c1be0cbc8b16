-- Looks at a log that is not empty, for any number of limits.
-- Expects key, size, n, limits, reply, r, call, now; oldest, the stamp of the oldest entry; scale, how many times their
-- stamps scores are.
-- Provides the short reply as if the take was added; odd, whether this part does not decide; denied; keep, the longest
-- window; cut, the score up to which entries have expired, nil if none have.
local odd, denied, rest, keep, cut = oldest <= 0, false, size, 0, nil -- odd: as with one limit
for i = 1, limits do
  local window = ARGV[n + 1 + 2 * i] + 0
  if window > keep then keep = window end
end
if oldest <= now - keep then
  cut = textOf(scale * (now - keep))
  rest = size - call('ZCOUNT', key, '1', cut)
  oldest = rest > 0 and call('ZRANGE', key, -rest, -rest, 'WITHSCORES')[2] / scale
end
for i = 1, limits do
  local quota, window, held, since, sign = ARGV[n + 2 * i] + 0, ARGV[n + 1 + 2 * i] + 0, rest, oldest, 1
  if oldest and oldest <= now - window then -- since is the oldest entry in the window, or false
    held = call('ZCOUNT', key, '(' .. textOf(scale * (now - window)), '+inf')
    since = held > 0 and call('ZRANGE', key, -held, -held, 'WITHSCORES')[2] / scale
  end
  odd = odd or held > quota or since and since > now
  if held == quota then denied, sign = true, -1 end
  local left = since and since - now + window or window
  reply[r + i] = sign * (held * (window + 1) + left + 1)
end
