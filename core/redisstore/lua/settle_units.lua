-- Changes how many units a take has in a log.
-- Expects call, now, and what marks.lua and weights.lua provide. Sets settle.

-- settle changes the units of a take, if the log has it. One that is stamped after now, as bookings are, moves to now.
settle = function(key, id, want)
  -- include find
  if not stamp then return end
  local mark, kept, scale, summary = readHead(call('ZRANGE', key, '0', '0', 'WITHSCORES'))
  if not summary and want > 1 then -- a take tells the window of a log that had no mark
    summary = weights().begin(key, mark, kept or 0, scale)
  end
  stamp = stamp / scale
  local moves = want > 0 and stamp > now
  if summary then
    local old = weights().splice(key, summary, first, stamp, scale, 4, not moves and want > 0 and want - 1)
    summary.total = summary.total - old - 1 + (moves and 0 or want)
  end
  if want == 0 or moves then call('ZREM', key, first) end
  if summary and (want == 0 or moves) and summary.first == stamp then
    summary.first = weights().firstStamp(key, scale)
  end
  if moves then
    call('ZADD', key, textOf(scale * now), first)
    if summary then weights().put(key, summary, first, now, scale, want - 1) end
  end
  if summary then
    weights().save(key, summary)
  elseif mark and scale == 1 and want == 0 then -- the scores of "near:" change when a log has become short
    local entries = call('ZCARD', key) - 1
    if entries < many then weights().setMark(key, mark, string.format('%.0f', kept), entries, false) end
  end
end
