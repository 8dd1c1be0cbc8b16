-- The sums of weights: see docs/internals.md, "Redis formats".
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
