-- The search in a log with weights. It takes the sums of the blocks of level 2, of some 16 to 64 of level 1, and as
-- many weights. It does not use the sum of the oldest block of a level, of which a part may have left the log.
-- Expects what weights.lua provides. Provides sumSince and unitAt.

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

-- sumIn returns the sum of the weights from an instant on up to another, the end of a block.
local function sumIn(key, from, ends)
  local sum = sumOf(0, call('ZRANGEBYSCORE', key, scoreOf(0, from), scoreOf(0, ends)))
  local found = call('ZRANGEBYSCORE', key, scoreOf(packs, from), scoreOf(packs, ends))
  if found[1] then
    local _, weights = recordsIn(found, from, ends)
    for i = 1, #weights do sum = sum + weights[i] end
  end
  return sum
end

-- sumSince returns the sum of the weights from an instant on, of which all is the sum of all.
local function sumSince(key, at, all)
  local whole = call('ZCOUNT', key, lows[1], after(1, at)) -- the blocks that end before
  if whole <= few then
    local single = call('ZRANGEBYSCORE', key, lows[0], after(0, at), 'LIMIT', '0', '200')
    if #single < 200 then
      local sum = all - sumOf(0, single)
      if whole == 0 then return sum end
      local found = call('ZRANGEBYSCORE', key, lows[packs], after(packs, at))
      found[#found + 1] = call('ZRANGEBYSCORE', key, scoreOf(packs, at), highs[packs], 'LIMIT', '0', '1')[1]
      local _, weights = recordsIn(found, 0, at - 1)
      for i = 1, #weights do sum = sum - weights[i] end
      return sum
    end
  end
  local sum, last = 0, nil
  for level = 1, 2 do -- up to the end of the blocks that the instant is in
    local block = call('ZRANGEBYSCORE', key, scoreOf(level, last or at), highs[level], 'LIMIT', '0', '1')[1]
    if not block then
      if not last then return sumOf(0, call('ZRANGEBYSCORE', key, scoreOf(0, at), highs[0])) end
      return sum + sumAfter(key, level - 1, last)
    end
    local ends = select(2, struct.unpack('>Bd', block))
    if level == 1 then
      sum = sumIn(key, at, ends)
    else
      sum = sum + sumOf(1, call('ZRANGEBYSCORE', key, after(1, last), scoreOf(1, ends)))
    end
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

-- weightsIn returns the instants after one up to another, the end of a block, newest first, and the weights of each.
-- The two are nil for no bound.
local function weightsIn(key, from, to)
  local instants, weights = {}, {}
  if to then
    local found = call('ZRANGEBYSCORE', key, from and after(packs, from) or lows[packs], scoreOf(packs, to))
    if found[1] then instants, weights = recordsIn(found, 0, to) end
  end
  local packed = #instants
  local found = call('ZRANGEBYSCORE', key, from and after(0, from) or lows[0], to and scoreOf(0, to) or highs[0],
    'WITHSCORES')
  for k = 1, #found, 2 do
    instants[#instants + 1], weights[#weights + 1] = found[k + 1] * 2 ^ 53 - far, struct.unpack('>I4', found[k], 9)
  end
  local order = {}
  for k = #instants, 1, -1 do order[#order + 1] = k end
  if packed > 0 and found[1] then table.sort(order, function(a, b) return instants[a] > instants[b] end) end
  return order, instants, weights
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
  local order, all, weights = weightsIn(key, from, to)
  local instants, sums, n, sum = {}, {}, 0, newer
  for _, k in ipairs(order) do
    if all[k] ~= instants[n] then n = n + 1 end
    sum = sum + weights[k]
    instants[n], sums[n] = all[k], sum
  end
  local i = firstOf(key, units, instants, sums, n, shift, '')
  if i > 1 then newer = sums[i - 1] end
  -- It is one of that entry, or of a newer one without a weight.
  local score = (call('ZRANGE', key, newer - units, newer - units, 'WITHSCORES')[2] or 0) + 0
  return i <= n and math.max(score, instants[i] + shift) or score
end
