-- Lists a part of a log, oldest first.
-- KEYS[1] the log. ARGV: its window (us); how many entries, and more only if the last ones are of one instant; the
-- instant after which they begin, or 0; the one up to which they go, or 0 for the newest. Reply: that one; then the
-- instant and the units of each entry. There are no others if these are fewer than was asked for.
-- include log
local key, size, from, last = KEYS[1], ARGV[2] + 0, math.max(now - ARGV[1], ARGV[3] + 0), ARGV[4]
if last == '0' then last = call('ZRANGE', key, '-1', '-1', 'WITHSCORES')[2] or '0' end
local found = call('ZRANGE', key, '(' .. text(from), last, 'BYSCORE', 'LIMIT', '0', size, 'WITHSCORES')
if #found == 2 * size then
  local at, n = found[#found], #found
  while n > 0 and found[n] == at do n = n - 2 end
  local same = call('ZRANGE', key, at, at, 'BYSCORE', 'WITHSCORES')
  for i = 1, #same do found[n + i] = same[i] end
end
local reply = {last + 0}
for i = 1, #found, 2 do reply[i + 1], reply[i + 2] = found[i + 1] + 0, costOf(found[i]) end
return reply
