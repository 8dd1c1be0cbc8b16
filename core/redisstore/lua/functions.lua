-- What the parts of decide call.
-- Expects call, mode. Provides scoreAt, add and executed.

local function scoreAt(key, rank)
  return (call('ZRANGE', key, rank, rank, 'WITHSCORES')[2] or 0) + 0
end

-- add adds the units of takes, and returns how many of them were there already. The member of each first unit ends with
-- ending.
local function add(key, score, ids, takes, cost, ending)
  if takes == 1 and cost == 1 then return 1 - call('ZADD', key, 'NX', score, ids:sub(1, 8) .. ending) end
  local batch, b, there = {}, 0, takes * cost
  for t = 1, takes do
    local id = ids:sub(8 * t - 7, 8 * t)
    for unit = 0, cost - 1 do
      local number = unit == 0 and ending or string.char(math.floor(unit / 256), unit % 256)
      batch[b + 1], batch[b + 2], b = score, id .. number, b + 2
      if b == 2000 or t == takes and unit == cost - 1 then -- unpack has room for some thousands
        there = there - call('ZADD', key, 'NX', unpack(batch, 1, b))
        b = 0
      end
    end
  end
  return there
end

-- executed returns, of takes that were executed before, how many of their units are there, whether they were denied,
-- and since when.
local function executed(key, ids, takes, cost)
  local since = call('ZSCORE', key, ids:sub(1, 8))
  if since then
    local t = 1
    while t < takes and call('ZSCORE', key, ids:sub(8 * t + 1, 8 * t + 8)) do t = t + 1 end
    return t * cost, false, since + 0
  end
  since = mode == 'd' and call('ZSCORE', key, ids .. '\0')
  if since then return cost, true, since + 0 end
  return 0, false, nil
end
