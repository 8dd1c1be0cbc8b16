-- What the short paths of fixed windows and token buckets need for any key.
-- Expects short, first, now. Provides span, what the short reply counts up to (us): the window, or the time for one
-- unit; left, how long the window lasts, and mark, the value without units; most, how far ahead a full bucket is.
local span, left, mark, most = 0, 0, 0, 0
if short == 'W' then
  span = ARGV[first] + 0
  left = span - now % span
  mark = (now + left - span) / span % 80000000 * 100000000
elseif short == 'T' then
  span = ARGV[first] + 0
  most = quota * span
end
