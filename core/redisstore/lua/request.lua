-- What is asked of a log, in the whole form.
-- Expects n, after which the arguments begin; ttl, the first of them; plain; limits. Provides mode, without its "v";
-- upTo, whether that is "u"; varies; keep (us) and keepText; ttl; deciding, quotas, windows; largest, how many units a
-- log keeps where it is trimmed; the tables used and resets, for numbers of each limit and one log.
local first = n + 2 -- where quota and window of each limit begin
mode, varies, keepText, deciding, largest = 'c', false, '0', limits, 0
if not plain then
  mode, keepText, ttl, deciding, largest = ttl, ARGV[n + 2], ARGV[n + 3], ARGV[n + 4] + 0, ARGV[n + 5] + 0
  first, varies, mode = n + 6, #mode > 1, mode:sub(-1)
end
quotas, windows, used, resets, upTo = {}, {}, {}, {}, mode == 'u'
for i = 1, limits do
  local window = ARGV[first + 2 * i - 1]
  quotas[i], windows[i] = ARGV[first + 2 * i - 2] + 0, window + 0
  largest = i <= deciding and math.max(largest, quotas[i]) or largest
  keepText = plain and windows[i] > keepText + 0 and window or keepText
end
keep = keepText + 0
