-- What scripts know of weights: see docs/internals.md, "Redis formats".
-- Expects call, far. Provides the functions below.

-- Level 0 has the weights, level 1 the sums of blocks of about 64 weights, and level 2 those of 64 blocks. The scores of
-- a level are in one range, which is below that of the level before.
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
  local last = call('ZREVRANGEBYSCORE', key, highs[level], lows[level], 'LIMIT', '0', '1')[1]
  local below = level - 1
  local from = last and after(below, select(2, struct.unpack('>Bd', last))) or lows[below]
  local sum = sumOf(below, call('ZRANGEBYSCORE', key, from, scoreOf(below, at)))
  call('ZADD', key, scoreOf(level, at), struct.pack('>Bdd', level, at, sum))
end

-- addWeight gives the entry of that id and instant a weight. all is the sum of all weights with this one.
local function addWeight(key, id, at, weight, all)
  call('ZADD', key, all * 2 ^ -80, 'sum', scoreOf(0, at), id .. struct.pack('>I4', weight))
  local ends = id:byte(8) % 64 == 0
  if not addToBlocks(key, at, weight) and ends then
    addBlock(key, 1, at)
    if id:byte(8) == 0 and id:byte(7) % 16 == 0 then addBlock(key, 2, at) end
  end
end

-- removeWeight removes the weight of the entry of that id and instant, and returns it: 0 if there is none.
local function removeWeight(key, id, at, all)
  local score = scoreOf(0, at)
  for _, member in ipairs(call('ZRANGEBYSCORE', key, score, score)) do
    if member:sub(1, 8) == id then
      local weight = struct.unpack('>I4', member, 9)
      call('ZREM', key, member)
      setSum(key, all - weight)
      addToBlocks(key, at, -weight)
      return weight
    end
  end
  return 0
end
