-- What scripts know of weights: see docs/internals.md, "Redis formats".
-- Expects call, far. Provides the functions below.

-- Level 0 has the weights, level 1 the sums of blocks of some 16 to 64 weights, and level 2 those of blocks of some
-- 1,024. The level packs has several weights in one member each. The scores of a level are in one range.
local packs = 0.5
local lows = {[0] = '0.4', '0.025', '0.0015625', [packs] = '0.1'}
local highs = {[0] = '(1', '(0.0625', '(0.00390625', [packs] = '(0.25'}

-- scoreOf returns the score that an instant has in a level, and after the same as the begin of a range. Both are exact.
local function scoreOf(level, at) return (at + far) * 2 ^ (-53 - 4 * level) end
local function after(level, at) return string.format('(%.17g', scoreOf(level, at)) end

-- single returns the member of level 0 that an entry's weight has.
local function single(entry, weight) return entry:sub(1, 8) .. struct.pack('>I4', weight) .. entry:sub(9) end

-- sumOf returns the sum of weights, and of the sums of blocks of a higher level.
local function sumOf(level, members)
  local sum, format, from = 0, level == 0 and '>I4' or '>d', level == 0 and 9 or 10
  for i = 1, #members do sum = sum + struct.unpack(format, members[i], from) end
  return sum
end

-- write removes members and then adds others, each after its score.
local function write(key, removed, added)
  if removed[1] then call('ZREM', key, unpack(removed)) end
  call('ZADD', key, unpack(added))
end

-- changes returns what write has to remove and to add so that the sum of all weights is all, and the sums of the blocks
-- that an instant is in have changed. It also returns the end of the block of level 1, nil if there is none.
local function changes(key, at, change, all)
  local removed, added, ends = {}, {all * 2 ^ -80, 'sum'}, nil
  for level = 1, 2 do
    local block = call('ZRANGEBYSCORE', key, scoreOf(level, at), highs[level], 'WITHSCORES', 'LIMIT', '0', '1')
    if not block[1] then break end
    local _, last, sum = struct.unpack('>Bdd', block[1])
    ends, removed[level] = ends or last, block[1]
    added[2 * level + 1], added[2 * level + 2] = block[2], struct.pack('>Bdd', level, last, sum + change)
  end
  return removed, added, ends
end

local packing, addWeight

-- withPacks makes the functions about packs, which few takes need.
local function withPacks()
  if packing then return packing end
  -- include weights_packs
  packing = {recordsIn = recordsIn, packBlocks = packBlocks, loosen = loosen, insert = insert, weightOf = weightOf,
    setWeight = setWeight}
  return packing
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
addWeight = function(key, entry, at, weight, all)
  local removed, added, ends = changes(key, at, weight, all)
  if not (ends and withPacks().insert(key, ends, entry, at, weight, removed, added)) then
    added[#added + 1], added[#added + 2] = scoreOf(0, at), single(entry, weight)
  end
  write(key, removed, added)
  local high, low = entry:byte(7, 8)
  local size = not ends and low % 16 == 0 and call('ZCARD', key)
  if size and low % (size < 400 and 16 or size < 1000 and 32 or 64) == 0 then
    addBlock(key, 1, at)
    if low == 0 and high % 4 == 0 then addBlock(key, 2, at) end
    -- Up to 128 members Redis keeps a set in some 26 bytes each, unless one is longer than 64 bytes.
    if size > 96 then withPacks().packBlocks(key) end
  end
end
