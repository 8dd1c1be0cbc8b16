-- Decides about the takes on one log in four steps: look, count, record and finish. The windows are computed in count,
-- longest and resetOf, and in the short paths.
-- Expects call, now, stamp, many, and steps of units.lua. Adds to steps the functions below.
--
-- A log is a table. newLog sets key; plan, what is asked; takes, their cost, and ids, 8 bytes for each. Then there are
-- mode: "p" while it is not known how many takes are recorded;
-- own, how many units of these takes were there before, denied, whether these are of a denial, and at, their score;
-- entries, units, extra: how many of the units are weights; oldest, the score of the oldest entry, false if there is
--   none, nil if it is not known any more;
-- marked, whether the log has a mark and cannot be decided here; what marked.lua knows of marks;
-- shift, by how much scores are higher than stamps; now and stamp as such scores; keep, how long entries stay (us);
--   ttl (ms);
-- expired, whether entries have expired; future, whether an entry from the future was seen;
-- admitted, how many takes; never, whether the cost is above a quota; new, units that were added; again, whether to
--   look at the log once more;
-- and what is replied: wait, shadow, used and resets.
steps.newLog = function(key, plan, takes, cost, ids)
  return {key = key, plan = plan, takes = takes, cost = cost, ids = ids, mode = plan.mode, own = 0, denied = false,
    used = {0}, resets = {0}, oldest = false, entries = 0, extra = 0, units = 0, keep = 0, ttl = 0, shift = 0, now = 0,
    stamp = 0, future = false, admitted = 0, never = false, expired = false, again = false, new = 0, wait = 0}
end

-- find looks for takes that were executed before.
steps.find = function(log)
  local key, ids, own = log.key, log.ids, 1
  log.own, log.denied, log.at = 0, false, nil
  local since = call('ZSCORE', key, ids:sub(1, 8))
  if since and log.plan.upTo then
    own = 1 + steps.weightOf(log, since + 0)
  elseif since then
    while own < log.takes and call('ZSCORE', key, ids:sub(8 * own + 1, 8 * own + 8)) do own = own + 1 end
    own = own * log.cost
  elseif log.plan.mode == 'd' then
    since, own = call('ZSCORE', key, ids .. '\0'), log.cost
    log.denied = since and true or false
  end
  if since then log.own, log.at = own, since + 0 end
end

-- look reads what a log holds before its takes. marked.lua replaces it by one that knows marks.
steps.look = function(log)
  local head, plan = call('ZRANGE', log.key, '0', '0', 'WITHSCORES'), log.plan
  log.marked, log.oldest, log.entries, log.extra = head[2] == '0', head[2] and head[2] + 0, 0, 0
  if head[1] then log.entries = call('ZCARD', log.key) end
  log.units, log.keep, log.ttl = log.entries, plan.keep, plan.ttl
  log.shift, log.now, log.stamp, log.future = 0, now, stamp, false
end

-- count finds out how many units each window holds, without own ones, and how many takes fit into all of them.
steps.count = function(log)
  local plan, cost, oldest = log.plan, log.cost, log.oldest
  log.admitted, log.never, log.expired = log.takes, false, oldest and oldest <= log.now - log.keep
  for i = 1, plan.limits do
    local opens, held = log.now - plan.windows[i], 0
    if oldest then held = oldest > opens and log.units or steps.since(log, opens + 1) end
    if log.at and log.at > opens and not log.denied then held = math.max(held - log.own, 0) end
    log.used[i] = held
    if i <= plan.deciding then
      log.never = log.never or cost > plan.quotas[i]
      log.admitted = math.max(math.min(log.admitted, math.floor((plan.quotas[i] - held) / cost)), 0)
    end
  end
end

-- record recognizes takes that were sent again because their reply was lost, and records the others, of which the first
-- ones are admitted.
steps.record = function(log)
  local mode, cost, own = log.mode, log.cost, log.own
  log.again, log.new = false, 0
  if mode == 'r' then log.admitted = log.takes end
  if own > 0 then
    log.admitted = log.denied and 0 or log.plan.upTo and own or math.max(log.admitted, own / cost)
  elseif (log.admitted < log.takes or mode == 'd') and mode ~= 'p' then -- a denial that was recorded stays one
    steps.find(log)
    log.again = log.own > 0
  end
  -- ZADD comes first: where memory is short it is refused before anything has changed.
  if log.again or mode == 'p' then
    -- nothing is added
  elseif not log.denied and log.admitted * cost > own then
    local there = steps.add(log, log.admitted, '')
    log.new = log.admitted * cost - own
    if there > own then
      call('PEXPIRE', log.key, log.ttl)
      steps.find(log)
      log.again = true
    end
  elseif mode == 'd' and own == 0 and log.admitted == 0 and not log.never then
    steps.add(log, 1, '\0')
    log.new = cost
  end
end

-- trim sets the TTL of a log to which units were added, and removes its oldest units. It returns an error, or nil.
steps.trim = function(log)
  local key, plan = log.key, log.plan
  local armed = redis.pcall('PEXPIRE', key, log.ttl)
  if type(armed) == 'table' and armed.err then
    if log.units == 0 then call('UNLINK', key) end -- without a TTL the entry would never leave
    return armed
  end
  log.entries = log.entries + (plan.upTo and 1 or log.new / log.cost)
  log.future = log.future or log.oldest and log.oldest > log.now
  if log.expired then steps.drop(log, log.now - log.keep, 2 * many) end -- the next takes remove the rest
  local bound = log.mode == 'r' and math.max(plan.largest, 100000) or plan.largest
  if (log.mode == 'r' or log.admitted == 0) and log.entries + log.extra > bound then steps.dropTo(log, bound) end
  log.units = log.entries + log.extra
end

-- longest returns how long limits deny the cost, -1 if one always does. counted units count beside those used, and
-- skipped ones as if they were not in the log.
steps.longest = function(log, from, to, counted, skipped)
  local quotas, wait = log.plan.quotas, 0
  for i = from, to do
    if log.cost > quotas[i] then
      wait = -1
    elseif wait >= 0 and log.used[i] + counted + log.cost > quotas[i] then
      -- A limit denies while the unit that must leave is in its window: with quota 5 and cost 1, the fifth newest.
      local instant = steps.at(log, quotas[i] - log.cost + 1 + skipped)
      log.future = log.future or instant > log.now
      wait = math.max(wait, math.min(instant, log.now) + log.plan.windows[i] - log.now)
    end
  end
  return wait
end

-- resetOf returns how long until the oldest unit of a window leaves. mine are own units and new ones.
steps.resetOf = function(log, i, mine)
  local window = log.plan.windows[i]
  local opens, held = log.now - window, log.used[i]
  if log.new > 0 or log.at and log.at > opens then held = math.min(held + mine, log.units) end
  if held == log.new and log.new > 0 then return window end
  if held == 0 then return 0 end
  log.oldest = log.oldest or steps.scoreAt(log.key, -log.entries)
  local since = log.oldest
  if since <= opens then
    since = call('ZRANGEBYSCORE', log.key, opens + 1, '+inf', 'WITHSCORES', 'LIMIT', '0', '1')[2] or 0
  end
  return math.max(0, math.min(since - opens, window))
end

-- repair moves entries from the future to the present, so that they leave in one window at most. A clock that has
-- stepped back leaves such entries, for instance in a failover.
steps.repair = function(log)
  local late = call('ZRANGEBYSCORE', log.key, '(' .. log.stamp, '+inf')
  for i = 1, #late do call('ZADD', log.key, 'XX', log.stamp, late[i]) end
  if #late > 0 then call('PEXPIRE', log.key, log.ttl) end
  steps.moveLate(log)
end

-- finish trims the log, and finds out the rest of what is replied. It returns an error, or nil.
steps.finish = function(log)
  local plan, admitted = log.plan, log.admitted
  local refused = admitted < log.takes and not (plan.upTo and admitted > 0)
  local mine = log.denied and 0 or log.own + log.new -- what was trimmed for a denied take is not known any more
  if plan.limits > plan.deciding then log.shadow = steps.longest(log, plan.deciding + 1, plan.limits, 0, mine) end
  local failed = log.new > 0 and steps.trim(log)
  if failed then return failed end
  if log.new > 0 then steps.extend(log) end
  log.wait = steps.longest(log, 1, refused and plan.deciding or 0, mine, 0)
  if log.never and admitted == 0 then
    log.wait = -1
  elseif refused then
    -- With several limits, none of them may look at the entry from the future.
    log.future = log.future or plan.limits > 1 and log.units > 0 and steps.scoreAt(log.key, '-1') > log.now
    log.wait = math.max(log.wait, 1) -- if they are sent again so late that there is room by now
  end
  for i = 1, plan.limits do log.resets[i] = steps.resetOf(log, i, mine) end
  if log.future and log.mode ~= 'p' then steps.repair(log) end
end

-- settle records as many takes as are admitted, or as many as share then admits of them, and finishes. It returns an
-- error, or nil.
steps.settle = function(log, share)
  repeat
    if share then share(log) end
    steps.record(log)
    if log.again then
      steps.look(log)
      steps.count(log)
    end
  until not log.again
  return steps.finish(log)
end
