-- Removes the oldest entries of a log with weights.
-- Expects what weights_blocks.lua and weights_search.lua provide. Provides drop and dropToUnits.

-- drop removes the entries up to an instant, those of about 40 blocks at most. It returns how many, and how many units
-- the log then has beyond one for each entry, of which there were so many.
local function drop(key, s, at, scale, entries)
  local units, dropped, block, ends, sum = 0, 0, oldestBlock(key)
  while block and ends <= at do
    call('ZREM', key, block)
    units, dropped = units + sum - sumOf(block:sub(15), 1, s.gone), dropped + 1
    s.gone, at = unknown, dropped == 40 and ends or at
    block, ends, sum = oldestBlock(key)
  end
  local removed = call('ZREMRANGEBYSCORE', key, '1', textOf(scale * at))
  local text, gone = block and block:sub(15) or s.open, s.gone + removed
  if s.gone == unknown then
    gone = math.max(#text / 4 - call('ZCOUNT', key, '1', block and textOf(scale * ends) or '+inf'), unknown)
  end
  units, s.gone = units + sumOf(text, math.max(s.gone, 0) + 1, gone), gone
  if not block and gone > 0 then s.open, s.gone = text:sub(4 * gone + 1), 0 end
  if gone > 100 then cutBlock(key, s) end
  s.total, s.first = s.total - units - removed, firstStamp(key, scale)
  return removed, s.total - entries + removed
end

-- dropToUnits removes the oldest units until so many are left, and returns what drop does. An entry of which a part is
-- left can no longer be found by its id.
local function dropToUnits(key, s, units, scale, entries)
  local at, removed = unitAt(key, s, units, scale), 0
  local score = textOf(scale * at)
  repeat
    local some = drop(key, s, at - 1, scale, 0)
    removed = removed + some
  until some == 0
  for _, member in ipairs(s.total > units and call('ZRANGEBYSCORE', key, score, score) or {}) do
    local excess, weight = s.total - units, splice(key, s, member, at, scale, 4, true)
    if weight >= excess then
      splice(key, s, member, at, scale, 4, weight - excess)
      call('ZREM', key, member)
      call('ZADD', key, score, member:sub(1, 8) .. '\1')
      s.total = units
      break
    end
    splice(key, s, member, at, scale, 4, false)
    call('ZREM', key, member)
    s.total, removed = s.total - weight - 1, removed + 1
    if s.total <= units then break end
  end
  s.first = firstStamp(key, scale)
  return removed, s.total - entries + removed
end
