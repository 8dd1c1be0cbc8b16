-- The short path of several limits and a log that is not empty.
-- Expects key, id, size, and what take.lua and clock.lua provide. Provides told and the short reply; quotas, windows,
-- keep, cuts and cut for all logs.
if not cuts then
  quotas, windows, cuts, keep = {}, {}, {}, 0
  for i = 1, limits do
    local window = ARGV[n + 1 + 2 * i] + 0
    quotas[i], windows[i], keep = ARGV[n + 2 * i] + 0, window, window > keep and window or keep
  end
  cut = string.format('%.0f', now - keep)
end
local oldest, expired = call('ZRANGE', key, '0', '0', 'WITHSCORES')[2] + 0, 0
local odd, denied = oldest == 0, false
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
  -- include short_reply
end
if odd then
  -- undecided: as with one limit
elseif denied then
  told = not call('ZSCORE', key, id) and call('ZCOUNT', key, '(' .. stamp, '+inf') == 0 -- no entry from the future
  for i = 1, limits do -- an empty window has no time left, since the take is not recorded
    reply[r + i] = reply[r + i] == windows[i] + 1 and 1 or reply[r + i]
  end
elseif call('ZADD', key, 'NX', stamp, id) == 1 then
  told = true
  if size * 1000000 <= keep or call('PTTL', key) < plain - 900 then call('PEXPIRE', key, ttl) end
  if expired > 0 then call('ZREMRANGEBYSCORE', key, '-inf', cut) end
end
