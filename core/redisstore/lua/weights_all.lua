-- Makes the functions about weights, which most scripts do not need.
-- Expects call, far, scoreAt. Provides weights and weightSearch, which return them in tables.
local weighing, searching

local function weights()
  if weighing then return weighing end
  -- include weights
  weighing = {packs = packs, lows = lows, highs = highs, scoreOf = scoreOf, after = after, sumOf = sumOf,
    addWeight = addWeight, withPacks = withPacks}
  return weighing
end

local function weightSearch()
  if searching then return searching end
  local w = weights()
  local packs, lows, highs, scoreOf, after, sumOf = w.packs, w.lows, w.highs, w.scoreOf, w.after, w.sumOf
  local addWeight, withPacks = w.addWeight, w.withPacks
  -- include weights_search
  -- include weights_drop
  searching = {sumSince = sumSince, unitAt = unitAt, drop = drop, dropToUnits = dropToUnits, moveTo = moveTo}
  return searching
end
