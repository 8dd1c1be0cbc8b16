-- Changes how many units a take has in a log.
-- Expects key, id, call; first, the member of its entry; stamp, its score; want, its units from now on; far, many, and
-- what marks.lua and weights.lua provide.
local head = call('ZRANGE', key, '0', '1', 'WITHSCORES')
local mark, near, weighted, kept = readMark(head)
local shifted = mark and not near
if weighted or want > 1 then
  local all = weighted and head[4] * 2 ^ 80 or 0
  weightChanges().setWeight(key, first, stamp - (shifted and far or 0), math.max(want - 1, 0), all)
end
if want == 0 then call('ZREM', key, first) end

-- A log whose mark is "near:" changes its scores when it has become short. A take tells the window of a log that had no
-- mark. Of a log without entries no sums of blocks must be left, for they would leave with an entry only.
local ended = want == 0 and weighted and first:byte(8) % 16 == 0
local entries = (want > 1 and not weighted or near and want == 0 or ended) and call('ZCOUNT', key, '1', '+inf')
if ended and entries == 0 then
  call('UNLINK', key)
elseif want > 1 and not weighted or near and want == 0 and entries < many then
  local window = string.format('%.0f', mark and kept or 0)
  setMark(key, mark, window, weighted or want > 1, entries, shifted)
end
