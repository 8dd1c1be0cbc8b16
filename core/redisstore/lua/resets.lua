-- How long until the oldest unit of each window leaves.
-- Expects key, mine, and what decide.lua declares. Provides resets.
for i = 1, limits do
  local opens, held, reset = logNow - windows[i], used[i], 0
  if new > 0 or at and at > opens then held = math.min(held + mine, units) end
  if held == new and new > 0 then
    reset = windows[i]
  elseif held > 0 then
    oldest = oldest or scoreAt(key, -entries)
    local since = oldest
    if oldest <= opens then
      since = call('ZRANGEBYSCORE', key, opens + 1, '+inf', 'WITHSCORES', 'LIMIT', '0', '1')[2] or 0
    end
    reset = math.max(0, math.min(since - opens, windows[i]))
  end
  resets[i] = reset
end
