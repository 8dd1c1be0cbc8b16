-- What is different where logs may have marks: see docs/internals.md, "Redis formats".
-- Expects call, now, stamp, far, many, withWeights, and steps of units.lua and log.lua. Changes these. Few logs need
-- what weights.lua knows, so its functions are made for the first one that does.
-- include marks

-- raise makes the scores of a log those of "keep:".
local function raise(log)
  log.shift, log.now = far, now + far
  log.stamp = string.format('%.0f', log.now)
end

-- look also sets mark, near, weighted and kept: see marks.lua; and extend, whether the mark is missing or has too short
-- a window.
steps.look = function(log)
  local key, plan = log.key, log.plan
  local head = call('ZRANGE', key, '0', '0', 'WITHSCORES')
  log.mark, log.near, log.weighted, log.kept = readMark(head)
  if withWeights and (log.weighted or log.cost > 1 or plan.upTo) then
    withWeights(steps)
    withWeights = nil -- the steps know weights from now on
  end
  log.entries, log.extra, log.oldest, log.keep, log.ttl = 0, 0, head[2] and head[2] + 0, plan.keep, plan.ttl
  if log.weighted then
    log.entries, log.extra = call('ZCOUNT', key, '1', '+inf'), (call('ZSCORE', key, 'sum') or 0) * 2 ^ 80
  elseif head[1] then
    log.entries = call('ZCARD', key) - (log.mark and 1 or 0)
  end
  log.extend = plan.varies or log.cost > 1 or plan.upTo and log.takes > 1
  if log.mark then
    log.extend = log.kept < plan.keep
    log.oldest = log.entries > 0 and steps.scoreAt(key, -log.entries)
    if not log.extend then log.keep, log.ttl = log.kept, math.floor(log.kept / 1000) + 1000 end
  end
  log.units, log.shift, log.now, log.stamp, log.future = log.entries + log.extra, 0, now, stamp, false
  if log.mark and not log.near or log.extend and not log.oldest then raise(log) end
end

-- extend changes the mark of a log to which units were added: gives the first one, one of a longer window, one that
-- tells of weights, or "keep:" in place of "near:" when the log has become short.
steps.extend = function(log)
  if log.extend or log.near and log.entries < many or log.extra > 0 and not log.weighted then
    local window = log.extend and log.plan.keepText or string.format('%.0f', log.kept)
    local mark = setMark(log.key, log.mark, window, log.weighted or log.extra > 0, log.entries, log.shift > 0)
    if log.shift == 0 and mark:sub(1, 5) == 'keep:' then
      raise(log)
      log.oldest, log.at = nil, log.at and log.at + far
    end
  end
end

