-- The search in a log with weights. It takes the sums of the blocks of level 2, of some 64 of level 1, and some 64
-- weights. It does not use the sum of the oldest block of a level, of which a part may have left the log.
-- Expects scoreAt, and what weights.lua provides. Provides sumSince and unitAt.

-- sumAfter returns the sum of the weights after a block of that level, of which last is the end, or nil for all.
local function sumAfter(key, level, last)
  local sum = 0
  for level = level, 0, -1 do
    local found = call('ZRANGEBYSCORE', key, last and after(level, last) or lows[level], highs[level])
    sum = sum + sumOf(level, found)
    if level > 0 and found[1] then last = select(2, struct.unpack('>Bd', found[#found])) end
  end
  return sum
end

-- sumSince returns the sum of the weights from an instant on, of which all is the sum of all.
local function sumSince(key, at, all)
  local from, sum = scoreOf(0, at), 0
  local before = after(0, at)
  if call('ZCOUNT', key, lows[0], before) <= 100 then
    return all - sumOf(0, call('ZRANGEBYSCORE', key, lows[0], before))
  end
  local last
  for level = 1, 2 do -- up to the end of the blocks that the instant is in
    local block = call('ZRANGEBYSCORE', key, scoreOf(level, last or at), highs[level], 'LIMIT', '0', '1')[1]
    if not block then
      if not last then return sumOf(0, call('ZRANGEBYSCORE', key, from, highs[0])) end
      return sum + sumAfter(key, level - 1, last)
    end
    local ends = select(2, struct.unpack('>Bd', block))
    local begin = last and after(level - 1, last) or from
    sum = sum + sumOf(level - 1, call('ZRANGEBYSCORE', key, begin, scoreOf(level - 1, ends)))
    last = ends
  end
  return sum + sumAfter(key, 2, last)
end

-- firstOf returns the first of the numbers 1 to n for which the log has at least so many units from the score
-- instants[i] + shift on, or after it if open is '('; and n + 1 if there is none. sums[i] is the sum of their weights.
local function firstOf(key, units, instants, sums, n, shift, open)
  local low, high = 1, n + 1
  while low < high do
    local middle = math.floor((low + high) / 2)
    local entries = call('ZCOUNT', key, open .. string.format('%.0f', instants[middle] + shift), '+inf')
    if entries + sums[middle] >= units then high = middle else low = middle + 1 end
  end
  return low
end

-- unitAt returns the score of a unit, counted from the newest on, of a log whose scores are higher than the stamps by
-- shift.
local function unitAt(key, units, shift)
  local newer, from, to = 0, nil, nil -- the unit is after the instant from, but not after to; nil for no bound
  for level = 2, 1, -1 do
    local blocks = call('ZRANGE', key, to and scoreOf(level, to) or highs[level],
      from and after(level, from) or lows[level], 'BYSCORE', 'REV')
    local ends, sums, n, sum = {}, {}, #blocks, newer
    for i = 1, n do
      local _, last, inside = struct.unpack('>Bdd', blocks[i])
      if i == 1 and not to then sum = sum + sumAfter(key, level - 1, last) end
      ends[i], sums[i], sum = last, sum, sum + inside
    end
    local i = firstOf(key, units, ends, sums, n, shift, '(')
    if i > 1 then newer, to = sums[i - 1], ends[i - 1] end
    if i <= n then from = ends[i] end
  end
  local weights = call('ZRANGE', key, to and scoreOf(0, to) or highs[0],
    from and after(0, from) or lows[0], 'BYSCORE', 'REV', 'WITHSCORES')
  local instants, sums, n, sum = {}, {}, 0, newer
  for k = 1, #weights, 2 do
    local at = weights[k + 1] * 2 ^ 53 - far
    if at ~= instants[n] then n = n + 1 end
    sum = sum + struct.unpack('>I4', weights[k], 9)
    instants[n], sums[n] = at, sum
  end
  local i = firstOf(key, units, instants, sums, n, shift, '')
  if i > 1 then newer = sums[i - 1] end
  -- It is one of that entry, or of a newer one without a weight.
  local score = scoreAt(key, newer - units)
  return i <= n and math.max(score, instants[i] + shift) or score
end
