-- What is asked of a log, in the whole form.
-- Expects n, after which the arguments begin; limits, how many there are; plain, whether ARGV has the short form, and
-- if so peek and varies, whether it is of a peek and whether windows vary; what state.lua has. Sets that; provides
-- first, where quota and window of each limit begin.
local first, text = n + 2, ARGV[n + 1]
mode, varied, keep, last, deciding = peek and 'p' or 'c', varies, 0, limits, limits
keepTtl, quotas, windows, smallest, largest = text, {0}, {0}, math.huge, 0
if varies then
  keepTtl = text:sub(2)
elseif not plain then
  varied, mode, keep = #text > 1, text, ARGV[n + 2] + 0
  if varied then mode = text:sub(2) end
  keepTtl, deciding, largest, first = ARGV[n + 3], ARGV[n + 4] + 0, ARGV[n + 5] + 0, n + 6
end
for i = 1, limits do
  local quota, window = ARGV[first + 2 * i - 2] + 0, ARGV[first + 2 * i - 1] + 0
  quotas[i], windows[i] = quota, window
  if i <= deciding and quota < smallest then smallest = quota end
  if i <= deciding and quota > largest then largest = quota end
  if plain and window > keep then keep = window end
end
upTo, logKeep, logTtl = mode == 'u', keep, keepTtl
