-- How long limits deny the cost.
-- Expects from and to, the limits; counted, units that count beside those used; skipped, units that count as if they
-- were not in the log; key, and what decide.lua declares. Provides longest, -1 if a limit always denies; future.
local longest = 0
for i = from, to do
  if cost > quotas[i] then
    longest = -1
  elseif longest >= 0 and used[i] + counted + cost > quotas[i] then
    -- A limit denies while the unit that must leave is in its window: with quota 5 and cost 1, the fifth newest.
    local unit = quotas[i] - cost + 1 + skipped
    local instant = extra > 0 and weightSearch().unitAt(key, unit, shift) or scoreAt(key, -unit)
    future = future or instant > logNow
    longest = math.max(longest, math.min(instant, logNow) + windows[i] - logNow)
  end
end
