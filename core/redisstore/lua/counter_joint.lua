-- Limits of other algorithms than the sliding log, in a request over several.
-- Expects call, and what decide_all.lua provides. Provides lookAtCounter and settleCounter, which do for such a limit
-- what look and settle do for a log. They do not know takes that were executed before, but the sliding logs of the
-- request do.
local function lookAtCounter(log)
  log.before, log.moved = log.view(call('GET', log.key))
  log.admitted = math.max(math.min(log.takes, math.floor((log.quotas[1] - log.before) / log.cost)), 0)
  return true
end

local function settleCounter(log)
  share(log)
  local admitted, before, added, till, cost = log.admitted, log.before, 0, log.till, log.cost
  local quota, used, resets = log.quotas[1], log.used, log.resets
  if log.mode ~= 'p' and admitted > earlier then added = (admitted - earlier) * cost end
  if added > 0 or log.moved and asked ~= 'p' then log.put(log.key, added) end
  local after = before + added
  if earlier > 0 then -- they were counted when they were executed before
    before = math.max(before - earlier * cost, 0)
    log.room = math.max(math.min(takes, math.floor((quota - before) / cost)), 0)
  end
  -- include counter_told
  log.wait = wait
end
