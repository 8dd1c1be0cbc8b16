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

-- sumOf returns the sum of weights, and of the sums of blocks of a higher level.
local function sumOf(level, members)
  local sum, format, from = 0, level == 0 and '>I4' or '>d', level == 0 and 9 or 10
  for i = 1, #members do sum = sum + struct.unpack(format, members[i], from) end
  return sum
end

-- recordsIn returns the instants and weights of the records of packs that are from one instant up to another.
local function recordsIn(found, from, to)
  local instants, weights, n = {}, {}, 0
  for i = 1, #found do
    for k = 9, #found[i], 20 do
      local weight, _, at = struct.unpack('>I4BI7', found[i], k)
      if from <= at and at <= to then
        n = n + 1
        instants[n], weights[n] = at, weight
      end
    end
  end
  return instants, weights
end
