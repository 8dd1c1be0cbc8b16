-- What scripts know of weights. Few takes need these functions, so they are made when they are first needed: those that
-- search for denials, too, and the others for what changes a log.
-- Expects call, far, now. Provides weights and weightChanges, which return the functions in tables.
local searches, changing

local function weights()
  if searches then return searches end
  -- include weights_sums
  -- include weights_search
  searches = {sumSince = sumSince, unitAt = unitAt}
  return searches
end

local function weightChanges()
  if changing then return changing end
  local addWeight
  -- include weights_sums
  -- include weights_write
  -- include weights_packs
  -- include weights_add
  -- include weights_drop
  changing = {addWeight = addWeight, addTakes = addTakes, weightOf = weightOf, setWeight = setWeight, drop = drop,
    dropToUnits = dropToUnits, moveTo = moveTo}
  return changing
end
