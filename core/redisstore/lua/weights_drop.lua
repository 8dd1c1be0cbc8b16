-- Removes entries from a log with weights, and moves them.
-- Expects what weights.lua and weights_search.lua provide. Provides drop, dropToUnits and moveTo.

-- drop removes the entries up to a score, which is higher than the stamp by shift. all is the sum of all weights. It
-- returns how many entries it has removed, and the sum of the weights that are left.
local function drop(key, score, shift, all)
  local at = score - shift
  local left = sumSince(key, at + 1, all)
  if left < all then
    for level = 0, 2 do call('ZREMRANGEBYSCORE', key, lows[level], scoreOf(level, at)) end
    setSum(key, left)
  end
  return call('ZREMRANGEBYSCORE', key, '1', score), left
end

-- dropToUnits removes the oldest units until so many are left, as drop does. An entry of which a part is left can no
-- longer be found by its id.
local function dropToUnits(key, units, entries, shift, all)
  local oldest = unitAt(key, units, shift)
  local removed, left = drop(key, oldest - 1, shift, all)
  local excess = entries - removed + left - units
  for _, member in ipairs(excess > 0 and call('ZRANGEBYSCORE', key, oldest, oldest) or {}) do
    local weight = removeWeight(key, member, oldest - shift, left)
    left = left - weight
    call('ZREM', key, member)
    if weight >= excess then
      weight = weight - excess
      left = left + weight
      local part = member:sub(1, 8) .. '\1'
      call('ZADD', key, oldest, part)
      if weight > 0 then addWeight(key, part, oldest - shift, weight, left) end
      break
    end
    removed, excess = removed + 1, excess - weight - 1
    if excess == 0 then break end
  end
  return removed, left
end

-- moveTo moves the weights of later instants to that one. They are then in no block, also if one ended there.
local function moveTo(key, at)
  local score = scoreOf(0, at)
  for _, member in ipairs(call('ZRANGEBYSCORE', key, after(0, at), highs[0])) do
    call('ZADD', key, 'XX', score, member)
  end
  for level = 1, 2 do call('ZREMRANGEBYSCORE', key, scoreOf(level, at), highs[level]) end
end
