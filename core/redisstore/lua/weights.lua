-- What scripts know of weights. Few takes need these functions, so they are made when they are first needed.
-- Expects call, far, now. Provides weights, which returns the functions in a table.
local weighing

local function weights()
  if weighing then return weighing end
  local addWeight
  -- include weights_sums
  -- include weights_packs
  -- include weights_add
  -- include weights_search
  -- include weights_drop
  weighing = {addWeight = addWeight, addTakes = addTakes, weightOf = weightOf, setWeight = setWeight,
    sumSince = sumSince, unitAt = unitAt, drop = drop, dropToUnits = dropToUnits, moveTo = moveTo}
  return weighing
end
