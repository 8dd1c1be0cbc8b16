-- What the reply tells about a limit of another algorithm than the sliding log.
-- Expects before, how many units were used; after, how many are now; admitted, takes, cost, upTo, quota, till. Provides
-- wait; fills used and resets.
local wait = 0
if admitted < takes and not (upTo and admitted > 0) and after + cost > quota then
  wait = cost > quota and -1 or math.max(till(quota - cost), 1)
end
used[1], resets[1] = before, after > 0 and till(after - 1) or 0
