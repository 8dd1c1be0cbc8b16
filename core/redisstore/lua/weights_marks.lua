-- Changes the marks of logs, and the scores that go with them.
-- Provides the functions below.

-- shiftScores makes the scores of a short log those of "keep:".
local function shiftScores(key)
  local all, batch, b = call('ZRANGEBYSCORE', key, '1', '+inf', 'WITHSCORES'), {}, 0
  for i = 1, #all, 2 do
    batch[b + 1], batch[b + 2], b = textOf(all[i + 1] + far), all[i], b + 2
    if b == 2000 or i == #all - 1 then -- unpack has room for some thousands
      call('ZADD', key, 'XX', unpack(batch, 1, b))
      b = 0
    end
  end
end

-- setMark gives a log a mark of that window, which is text, and the scores that go with it. mark is the old one or nil,
-- entries is how many the log has, and shifted whether their scores are those of "keep:". It returns the new mark.
local function setMark(key, mark, window, entries, shifted)
  if mark then call('ZREM', key, mark) end
  local long = not shifted and entries >= many -- it would take too long to change the scores
  if not shifted and not long then shiftScores(key) end
  mark = (long and 'near:' or 'keep:') .. window
  call('ZADD', key, '0', mark)
  return mark
end
