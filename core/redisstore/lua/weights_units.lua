-- withWeights has the steps know weights.
local function withWeights(steps)
  local single = {since = steps.since, at = steps.at, add = steps.add, drop = steps.drop, dropTo = steps.dropTo}

  steps.since = function(log, score)
    local sum = log.extra > 0 and weights().sumSince(log.key, score - log.shift, log.extra) or 0
    return single.since(log, score) + sum
  end

  steps.at = function(log, unit)
    if log.extra == 0 then return single.at(log, unit) end
    return weights().unitAt(log.key, unit, log.shift)
  end

  steps.add = function(log, takes, ending)
    local cost, each, there = log.cost, log.cost, takes
    if log.plan.upTo and takes > 1 then cost, each, takes = takes, 1, 1 end -- one entry for all steps
    if cost == 1 then return single.add(log, takes, ending) end
    for t = 1, takes do
      local entry = log.ids:sub(8 * t - 7, 8 * t) .. ending
      if call('ZADD', log.key, 'NX', log.stamp, entry) == 1 then
        there, log.extra = there - cost / each, log.extra + cost - 1
        weights().addWeight(log.key, entry, now, cost - 1, log.extra)
      end
    end
    return there * each
  end

  steps.drop = function(log, opens, most)
    if log.extra == 0 then return single.drop(log, opens, most) end
    if log.entries > most then opens = math.min(opens, single.at(log, log.entries - most + 1)) end
    local removed
    removed, log.extra = weights().drop(log.key, opens, log.shift, log.extra)
    log.entries, log.oldest = log.entries - removed, nil
  end

  steps.dropTo = function(log, bound)
    if log.extra == 0 then return single.dropTo(log, bound) end
    local removed
    removed, log.extra = weights().dropToUnits(log.key, bound, log.entries, log.shift, log.extra)
    log.entries, log.oldest = log.entries - removed, nil
  end

  steps.weightOf = function(log, score)
    return (weights().weightOf(log.key, log.ids, score < far and score or score - far))
  end

  steps.moveLate = function(log)
    if log.extra > 0 then weights().moveTo(log.key, now) end
  end
end
