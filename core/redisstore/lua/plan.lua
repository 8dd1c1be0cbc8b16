-- What is asked of a log, in the whole form.
-- Expects plain, whether ARGV has the short form. Provides the function planAt.

-- planAt reads what is asked of a log with so many limits, which begins at ARGV[n]. It returns a table, and where the
-- arguments of the next log begin. The table has mode, without its "v"; upTo, whether that is "u"; varies; keep (us)
-- and keepText; ttl; limits, how many there are, and deciding, how many of them decide; quotas and windows; largest,
-- how many units the log keeps where it is trimmed.
local function planAt(n, limits)
  local plan = {mode = 'c', ttl = ARGV[n], limits = limits, deciding = limits, largest = 0, quotas = {0}, windows = {0},
    varies = false, upTo = false, keep = 0, keepText = ''}
  local keepText, first = '0', n + 1
  if not plain then
    plan.mode, plan.varies = ARGV[n]:sub(-1), #ARGV[n] > 1
    keepText, plan.ttl, plan.deciding, plan.largest = ARGV[n + 1], ARGV[n + 2], ARGV[n + 3] + 0, ARGV[n + 4] + 0
    first = n + 5
  end
  for i = 1, limits do
    local window = ARGV[first + 2 * i - 1]
    plan.quotas[i], plan.windows[i] = ARGV[first + 2 * i - 2] + 0, window + 0
    if i <= plan.deciding then plan.largest = math.max(plan.largest, plan.quotas[i]) end
    if plain and plan.windows[i] > keepText + 0 then keepText = window end
  end
  plan.upTo, plan.keep, plan.keepText = plan.mode == 'u', keepText + 0, keepText
  return plan, first + 2 * limits
end
