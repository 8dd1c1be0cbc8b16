-- Changes how many units a take has in a log.
-- Expects key, id, call; first, the member of its entry; stamp, its score; want, its units from now on; and what
-- marks.lua, summary.lua and weights.lua provide.
local mark, kept, shift, summary = readHead(call('ZRANGE', key, '0', '0', 'WITHSCORES'))
if not summary and want > 1 then -- a take tells the window of a log that had no mark
  summary = weights().begin(key, mark, kept or 0, shift)
end
if summary then
  local old = weights().splice(key, summary, first, stamp - shift, shift, 4, want > 0 and want - 1)
  summary.total = summary.total - old - 1 + want
end
if want == 0 then call('ZREM', key, first) end
if summary then
  if want == 0 and summary.first == stamp - shift then summary.first = weights().firstStamp(key, shift) end
  weights().save(key, summary)
elseif mark and shift == 0 and want == 0 then -- a log whose mark is "near:" changes its scores when it has become short
  local entries = call('ZCARD', key) - 1
  if entries < many then weights().setMark(key, mark, string.format('%.0f', kept), entries, false) end
end
