-- What the parts of decide call.
-- Expects call, mode, asked, now, far. Provides scoreAt, weights, weightSearch, add and executed.

local function scoreAt(key, rank)
  return (call('ZRANGE', key, rank, rank, 'WITHSCORES')[2] or 0) + 0
end

-- include weights_all

-- add adds takes. The members of their entries end with ending. It returns how many of their units were there already,
-- and the sum of all weights, which was extra before.
local function add(key, score, ids, takes, cost, ending, extra)
  local batch, there = {}, takes
  if takes == 1 and cost == 1 then
    there = 1 - call('ZADD', key, 'NX', score, ids:sub(1, 8) .. ending)
  elseif upTo then
    if call('ZADD', key, 'NX', score, ids) == 1 then
      there, extra = 0, extra + takes - 1
      weights().addWeight(key, ids, now, takes - 1, extra)
    end
  elseif cost == 1 then
    for t = 1, takes do batch[2 * t - 1], batch[2 * t] = score, ids:sub(8 * t - 7, 8 * t) end
    there = takes - call('ZADD', key, 'NX', unpack(batch))
  else
    for t = 1, takes do
      local id = ids:sub(8 * t - 7, 8 * t)
      if call('ZADD', key, 'NX', score, id .. ending) == 1 then
        there, extra = there - 1, extra + cost - 1
        weights().addWeight(key, id .. ending, now, cost - 1, extra)
      end
    end
  end
  return there * cost, extra
end

-- executed returns, of takes that were executed before, how many of their units are there, whether they were denied,
-- and since when.
local function executed(key, ids, takes, cost)
  local since = call('ZSCORE', key, ids:sub(1, 8))
  if since and upTo then
    since = since + 0
    return 1 + weights().withPacks().weightOf(key, ids, since < far and since or since - far), false, since
  elseif since then
    local t = 1
    while t < takes and call('ZSCORE', key, ids:sub(8 * t + 1, 8 * t + 8)) do t = t + 1 end
    return t * cost, false, since + 0
  end
  since = (asked or mode) == 'd' and call('ZSCORE', key, ids .. '\0')
  if since then return cost, true, since + 0 end
  return 0, false, nil
end
