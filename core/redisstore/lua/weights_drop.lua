-- Removes entries from a log with weights, and moves them.
-- Expects weights, and what weights_sums.lua, weights_write.lua, weights_packs.lua and weights_add.lua provide.
-- Provides drop, dropToUnits and moveTo.

-- drop removes the entries up to a score, which is higher than the stamp by shift. all is the sum of all weights. It
-- returns how many entries it has removed, and the sum of the weights that are left.
local function drop(key, score, shift, all)
  local at = score - shift
  local left = weights().sumSince(key, at + 1, all)
  if left < all then
    call('ZREMRANGEBYSCORE', key, lows[0], scoreOf(0, at))
    call('ZADD', key, left * 2 ^ -80, 'sum')
  end
  if call('ZREMRANGEBYSCORE', key, lows[1], scoreOf(1, at)) > 0 then -- where a block of this level ends, all may
    call('ZREMRANGEBYSCORE', key, lows[2], scoreOf(2, at))
    call('ZREMRANGEBYSCORE', key, lows[packs], scoreOf(packs, at))
    local block = call('ZRANGEBYSCORE', key, lows[1], highs[1], 'LIMIT', '0', '1')[1]
    local to = block and scoreOf(packs, (select(2, struct.unpack('>Bd', block)))) or highs[packs]
    loosen(key, call('ZRANGEBYSCORE', key, lows[packs], to), at)
  end
  return call('ZREMRANGEBYSCORE', key, '1', score), left
end

-- dropToUnits removes the oldest units until so many are left, as drop does. An entry of which a part is left can no
-- longer be found by its id.
local function dropToUnits(key, units, entries, shift, all)
  local oldest = weights().unitAt(key, units, shift)
  local removed, left = drop(key, oldest - 1, shift, all)
  local excess = entries - removed + left - units
  for _, member in ipairs(excess > 0 and call('ZRANGEBYSCORE', key, oldest, oldest) or {}) do
    local weight
    weight, left = setWeight(key, member, oldest - shift, 0, left)
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
  for level = 1, 2 do call('ZREMRANGEBYSCORE', key, scoreOf(level, at), highs[level]) end
  local block = call('ZRANGE', key, highs[1], lows[1], 'BYSCORE', 'REV', 'LIMIT', '0', '1')[1]
  local from = block and after(packs, (select(2, struct.unpack('>Bd', block)))) or lows[packs]
  loosen(key, call('ZRANGEBYSCORE', key, from, highs[packs]), 0)
  local score = scoreOf(0, at)
  for _, member in ipairs(call('ZRANGEBYSCORE', key, after(0, at), highs[0])) do
    call('ZADD', key, 'XX', score, member)
  end
end
