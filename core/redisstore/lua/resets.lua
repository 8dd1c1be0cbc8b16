-- How long until the oldest unit of each window leaves.
-- Expects key, mine, and what decide.lua declares. Provides resets.
for i = 1, limits do
  local opens, held, reset = logNow - windows[i], used[i], 0
  if new > 0 or at and at > opens then held = math.min(held + mine, units) end
  if held == new and new > 0 then
    reset = windows[i]
  elseif held > 0 then
    oldest = oldest or scoreAt(key, first)
    reset = math.max(0, math.min((oldest > opens and oldest or scoreAt(key, -held)) - opens, windows[i]))
  end
  resets[i] = reset
end
