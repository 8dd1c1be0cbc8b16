-- What scripts know of weights. Few takes need these functions, so they are made when they are first needed.
-- Expects call, now, far, many. Provides weights, which returns the functions in a table. All of them take the key of a
-- log, mostly its summary s, which save writes, and scale, how many times their stamps the scores of entries are.
-- include marks
local made

local function weights()
  if made then return made end
  -- include weights_marks
  -- include weights_blocks
  -- include weights_search
  -- include weights_drop
  -- include weights_move
  made = {setMark = setMark, begin = begin, firstStamp = firstStamp, save = save, splice = splice, put = put,
    addTakes = addTakes, sumSince = sumSince, unitAt = unitAt, drop = drop, dropToUnits = dropToUnits, moveTo = moveTo}
  return made
end
