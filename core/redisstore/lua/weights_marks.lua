-- Changes the marks of logs, and the scores that go with them.
-- Provides the functions below.

-- doubleScores gives a log the scores of "keep:" by one command, since one for each entry takes ten times as long. That
-- command removes the TTL, so it comes after it is known that one may be set. The scores of blocks stay.
local function doubleScores(key)
  local ttl, blocks = call('PTTL', key), call('ZRANGEBYSCORE', key, '-inf', '(0', 'WITHSCORES')

  local function keepTtl()
    if ttl >= 0 then call('PEXPIRE', key, math.max(ttl, 1)) end
  end

  keepTtl()
  call('ZUNIONSTORE', key, '1', key, 'WEIGHTS', '2')
  for i = 1, #blocks, 2 do call('ZADD', key, 'XX', blocks[i + 1], blocks[i]) end
  keepTtl()
end

-- setMark gives a log a mark of that window, which is text, and the scores that go with it. mark is the old one or nil,
-- entries is how many the log has, and doubled whether their scores are those of "keep:". It returns the new mark.
local function setMark(key, mark, window, entries, doubled)
  if mark then call('ZREM', key, mark) end
  local long = not doubled and entries >= many -- it would take too long to change the scores
  if not doubled and not long then doubleScores(key) end
  mark = (long and 'near:' or 'keep:') .. window
  call('ZADD', key, '0', mark)
  return mark
end
