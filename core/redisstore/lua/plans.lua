-- What is asked of each log of a request, in the whole form.
-- Expects requests, logs, plain, and what request.lua changes. Provides asked, the mode; whole, how long the whole
-- replies about the logs of a request are; counters, how each limit counts that is no sliding log; the function pick.
local n, whole, plans, counters = requests + 1, 0, {}, {}
for j = 1, logs do
  local algorithm = ARGV[n]:match('^%a')
  if algorithm then
    -- include counter_plan
  else
    limits, slots, ttl = ARGV[n] + 0, ARGV[n]:sub(1, 1) == '0', ARGV[n + 1]
    -- include request
    n = first + 2 * limits
  end
  plans[j] = {ttl, limits, slots, deciding, varies, keepText, keep, largest, quotas, windows, used, resets, whole}
  whole = whole + 2 + 2 * limits + (limits > deciding and 1 or 0)
end
asked = mode

-- pick sets what decide uses to what is asked of the log with number j, and the mode to one in which nothing is
-- recorded; and offset, where the whole reply of the log begins behind those of the logs before it.
local function pick(j)
  log, mode = j, 'p'
  ttl, limits, slots, deciding, varies, keepText, keep, largest, quotas, windows, used, resets, offset
    = unpack(plans[j])
end
