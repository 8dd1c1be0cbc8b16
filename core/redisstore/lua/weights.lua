-- What scripts know of weights: see docs/internals.md, "Redis formats".
-- Expects call, far. Provides the functions below.

-- Level 0 has the weights, level 1 the sums of blocks of about 64 weights, and level 2 those of 64 blocks. The scores
-- of a level are in one range, which is below that of the level before.
local lows = {[0] = '0.4', '0.025', '0.0015625'}
local highs = {[0] = '(1', '(0.0625', '(0.00390625'}

-- scoreOf returns the score that an instant has in a level, and after the same as the begin of a range. Both are exact.
local function scoreOf(level, at) return (at + far) * 2 ^ (-53 - 4 * level) end
local function after(level, at) return string.format('(%.17g', scoreOf(level, at)) end

-- sumOf returns the sum of weights, and of the sums of blocks of a higher level.
local function sumOf(level, members)
  local sum, format, from = 0, level == 0 and '>I4' or '>d', level == 0 and 9 or 10
  for i = 1, #members do sum = sum + struct.unpack(format, members[i], from) end
  return sum
end

-- setSum stores the sum of all weights.
local function setSum(key, all) call('ZADD', key, all * 2 ^ -80, 'sum') end

-- addToBlocks changes the sums of the blocks that an instant is in. It reports whether there are any.
local function addToBlocks(key, at, change)
  for level = 1, 2 do
    local block = call('ZRANGEBYSCORE', key, scoreOf(level, at), highs[level], 'WITHSCORES', 'LIMIT', '0', '1')
    if not block[1] then return level == 2 end
    local _, last, sum = struct.unpack('>Bdd', block[1])
    call('ZREM', key, block[1])
    call('ZADD', key, block[2], struct.pack('>Bdd', level, last, sum + change))
  end
  return true
end

-- addBlock adds a block of a level that ends at an instant.
local function addBlock(key, level, at)
  local last = call('ZRANGE', key, highs[level], lows[level], 'BYSCORE', 'REV', 'LIMIT', '0', '1')[1]
  local below = level - 1
  local from = last and after(below, select(2, struct.unpack('>Bd', last))) or lows[below]
  local sum = sumOf(below, call('ZRANGEBYSCORE', key, from, scoreOf(below, at)))
  call('ZADD', key, scoreOf(level, at), struct.pack('>Bdd', level, at, sum))
end

-- addWeight gives an entry of that instant a weight. all is the sum of all weights with this one.
local function addWeight(key, entry, at, weight, all)
  local member = entry:sub(1, 8) .. struct.pack('>I4', weight) .. entry:sub(9)
  call('ZADD', key, all * 2 ^ -80, 'sum', scoreOf(0, at), member)
  local high, low = entry:byte(7, 8)
  if not addToBlocks(key, at, weight) and low % 64 == 0 then
    addBlock(key, 1, at)
    if low == 0 and high % 16 == 0 then addBlock(key, 2, at) end
  end
end

-- weightOf returns the weight of an entry of that instant, and the member that has it: 0 if there is none.
local function weightOf(key, entry, at)
  local score = scoreOf(0, at)
  for _, member in ipairs(call('ZRANGEBYSCORE', key, score, score)) do
    if member:sub(1, 8) .. member:sub(13) == entry then return (struct.unpack('>I4', member, 9)), member end
  end
  return 0
end

-- removeWeight removes the weight of an entry of that instant, and returns it. all is the sum of all weights.
local function removeWeight(key, entry, at, all)
  local weight, member = weightOf(key, entry, at)
  if member then
    call('ZREM', key, member)
    setSum(key, all - weight)
    addToBlocks(key, at, -weight)
  end
  return weight
end
