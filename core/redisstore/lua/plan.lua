-- What is asked of a log, in the whole form.
-- Expects n, after which the arguments begin; limits, how many there are; plain, whether ARGV has the short form, and
-- if so peek and varies, whether it is of a peek and whether windows vary; now, stamp. Provides log, the table that
-- log.lua describes; and first, where quota and window of each limit begin.
local mode, ttl, varies, first, keep, deciding = peek and 'p' or 'c', ARGV[n + 1], varies, n + 2, 0, limits
if varies then ttl = ttl:sub(2) end
local quotas, windows, least, largest = {0}, {0}, math.huge, 0
if not plain then
  varies, mode, keep = #ttl > 1, ttl:sub(-1), ARGV[n + 2] + 0
  ttl, deciding, largest, first = ARGV[n + 3], ARGV[n + 4] + 0, ARGV[n + 5] + 0, n + 6
end
for i = 1, limits do
  local quota, window = ARGV[first + 2 * i - 2] + 0, ARGV[first + 2 * i - 1] + 0
  quotas[i], windows[i] = quota, window
  if i <= deciding and quota < least then least = quota end
  if i <= deciding and quota > largest then largest = quota end
  if plain and window > keep then keep = window end
end
-- All names are in it from the beginning, because a table that grows takes time.
local log = {
  asked = mode, mode = mode, upTo = mode == 'u', varies = varies, keep = keep, ttl = ttl, limits = limits,
  deciding = deciding, quotas = quotas, windows = windows, least = least, largest = largest, used = {0}, resets = {0},
  own = 0, extra = 0, new = 0, now = now, stamp = stamp, logKeep = keep, logTtl = ttl, shift = 0, future = false,
}
