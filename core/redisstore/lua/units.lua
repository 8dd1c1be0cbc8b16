-- What a log holds if each entry is one unit. weights.lua and marked.lua replace what is different.
-- Expects call. Provides the table steps, with functions about a log as log.lua has it. One table makes fewer upvalues,
-- which take time, than a local for each.
-- weightOf returns the weight of a take with that score, moveLate moves weights from the future to the present, and
-- extend changes the mark of a log.
-- All names are in it from the beginning, because a table that grows takes time.
local steps = {scoreAt = 0, since = 0, at = 0, add = 0, drop = 0, dropTo = 0, newLog = 0, find = 0, look = 0, count = 0,
  record = 0, trim = 0, longest = 0, resetOf = 0, repair = 0, finish = 0, settle = 0,
  weightOf = function() return 0 end, moveLate = function() end, extend = function() end}

steps.scoreAt = function(key, rank)
  return (call('ZRANGE', key, rank, rank, 'WITHSCORES')[2] or 0) + 0
end

-- since returns how many units a log has from a score on.
steps.since = function(log, score) return call('ZCOUNT', log.key, score, '+inf') end

-- at returns the score of a unit, counted from the newest on.
steps.at = function(log, unit) return steps.scoreAt(log.key, -unit) end

-- add adds takes. The members of their entries end with ending. It returns how many of their units were there already.
steps.add = function(log, takes, ending)
  if takes == 1 then return 1 - call('ZADD', log.key, 'NX', log.stamp, log.ids:sub(1, 8) .. ending) end
  local batch = {}
  for t = 1, takes do batch[2 * t - 1], batch[2 * t] = log.stamp, log.ids:sub(8 * t - 7, 8 * t) end
  return takes - call('ZADD', log.key, 'NX', unpack(batch))
end

-- drop removes the entries up to a score, and so many at most that this many entries are left to the next takes.
steps.drop = function(log, opens, most)
  local removed
  if log.entries > most and steps.scoreAt(log.key, most - log.entries) <= opens then
    removed = call('ZREMRANGEBYRANK', log.key, -log.entries, most - log.entries - 1)
  else
    removed = call('ZREMRANGEBYSCORE', log.key, '1', opens)
  end
  log.entries, log.oldest = log.entries - removed, nil
end

-- dropTo removes the oldest units until so many are left.
steps.dropTo = function(log, bound)
  log.entries = log.entries - call('ZREMRANGEBYRANK', log.key, -log.entries, -bound - 1)
  log.oldest = nil
end
