-- The search in a log with weights.
-- Expects what weights_blocks.lua provides. Provides the functions below.

-- sumSince returns the sum of the weights from an instant on.
local function sumSince(key, s, at, scale)
  local from, n = textOf(scale * at), #s.open / 4
  local after = call('ZCOUNT', key, from, '+inf')
  if after <= n then return sumOf(s.open, n - after + 1, n) end
  local sum = sumOf(s.open, 1, n)
  local found = call('ZRANGEBYSCORE', key, '(-4e15', '-' .. textOf(at)) -- blocks, newest first
  for i = 1, #found - 1 do sum = sum + select(2, struct.unpack('>I7I7', found[i])) end
  local block = found[#found]
  if block then
    local ends, n = struct.unpack('>I7', block), (#block - 14) / 4
    local inside = call('ZCOUNT', key, from, textOf(scale * ends))
    sum = sum + sumOf(block:sub(15), math.max(n - inside, 0) + 1, n)
  end
  return sum
end

-- unitAt returns the stamp of a unit, counted from the newest on. It looks at the blocks from the oldest on, since
-- denials mostly end when a few units leave.
local function unitAt(key, s, units, scale)
  local need, blocks, sums, n, size, found = s.total - units + 1, {}, {[0] = 0}, 0, 1, nil

  local function entriesUpTo(i) -- the end of a block
    return call('ZCOUNT', key, '1', blocks[i] and textOf(scale * struct.unpack('>I7', blocks[i])) or '+inf')
  end

  repeat
    found = call('ZRANGE', key, '(0', '(-4e15', 'BYSCORE', 'REV', 'LIMIT', n, size)
    if n == 0 and found[1] then sums[0] = -sumOf(found[1]:sub(15), 1, s.gone) end
    for i = 1, #found do
      blocks[n + i], sums[n + i] = found[i], sums[n + i - 1] + select(2, struct.unpack('>I7I7', found[i]))
    end
    n, size = n + #found, 8 * size
  until #found == 0 or entriesUpTo(n) + sums[n] >= need
  local low, high = 1, n + (#found == 0 and 1 or 0) -- n + 1 is the open block
  while low < high do
    local middle = math.floor((low + high) / 2)
    if entriesUpTo(middle) + sums[middle] >= need then high = middle else low = middle + 1 end
  end
  local text = blocks[low] and blocks[low]:sub(15) or s.open
  local place = entriesUpTo(low) - #text / 4 -- entries before it
  local reached, i = place + sums[low - 1], 0
  if reached >= need then place = need - sums[low - 1] end
  while reached < need and i < #text do
    place, reached, i = place + 1, reached + 1 + struct.unpack('>I4', text, i + 1), i + 4
  end
  local rank = place - 1 - call('ZCOUNT', key, '1', '+inf')
  return (call('ZRANGE', key, rank, rank, 'WITHSCORES')[2] or 0) / scale
end
