-- The marks of logs: see docs/internals.md, "Redis formats".
-- Expects call, far, many. Provides the functions below.

-- readMark returns the mark of a log, nil if it has none; whether the mark is "near:"; whether the log has weights; and
-- the window in the mark (us). head is the reply to ZRANGE key 0 0 WITHSCORES.
local function readMark(head)
  local mark = head[2] == '0' and head[1] or nil
  if not mark then return nil, false, false end
  local weighted = mark:sub(-1) == 'w'
  return mark, mark:sub(1, 5) == 'near:', weighted, mark:sub(6, weighted and -2 or -1) + 0
end

-- setMark gives a log a mark of that window, which is text, and the scores that go with it. mark is the old one or nil,
-- entries is how many the log has, and shifted whether their scores are those of "keep:". It returns the new mark.
local function setMark(key, mark, window, weighted, entries, shifted)
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
  return mark
end
