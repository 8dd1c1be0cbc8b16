-- Gives a log a mark, and the scores that go with it.
-- Expects key; mark, the old one or nil; window, that of the new one as text; weighted, whether the log has weights;
-- entries, how many the log has; shifted, whether their scores are those of "keep:"; call, far, many. Sets mark.
if mark then call('ZREM', key, mark) end
mark = 'keep:' .. window
if not shifted and entries >= many then
  mark = 'near:' .. window -- it would take too long to change the scores
elseif not shifted then
  local all, batch, b = call('ZRANGEBYSCORE', key, '1', '+inf', 'WITHSCORES'), {}, 0
  for i = 1, #all, 2 do
    batch[b + 1], batch[b + 2], b = string.format('%.0f', all[i + 1] + far), all[i], b + 2
    if b == 2000 or i == #all - 1 then -- unpack has room for some thousands
      call('ZADD', key, 'XX', unpack(batch, 1, b))
      b = 0
    end
  end
end
if weighted then mark = mark .. 'w' end
call('ZADD', key, '0', mark)
