-- Makes the functions about weights, which most scripts do not need.
-- Expects call, far, scoreAt. Provides weights and weightSearch, which return them in tables.
local weighing, searching

local function weights()
  if weighing then return weighing end
  -- include weights
  weighing = {lows = lows, highs = highs, scoreOf = scoreOf, after = after, sumOf = sumOf, setSum = setSum,
    addWeight = addWeight, weightOf = weightOf, removeWeight = removeWeight}
  return weighing
end

local function weightSearch()
  if searching then return searching end
  local w = weights()
  local lows, highs, scoreOf, after, sumOf, setSum = w.lows, w.highs, w.scoreOf, w.after, w.sumOf, w.setSum
  local addWeight, removeWeight = w.addWeight, w.removeWeight
  -- include weights_search
  -- include weights_drop
  searching = {sumSince = sumSince, unitAt = unitAt, drop = drop, dropToUnits = dropToUnits, moveTo = moveTo}
  return searching
end
