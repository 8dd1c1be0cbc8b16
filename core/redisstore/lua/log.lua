-- Decides about the takes on one log in three steps: look, record and finish. The windows are computed in look, longest
-- and finish, and in the short paths.
-- Expects call, now, many, and what unmarked.lua or marked.lua provides: read, extend and weights.
--
-- A log is a table. plan.lua sets what is asked: asked, the mode without its "v"; upTo, whether that is "u"; varies;
-- keep (us); ttl; limits, how many there are, and deciding, how many of them decide; quotas and windows; largest, how
-- many units the log keeps where it is trimmed; least, the smallest quota. The scripts set key; takes, their cost, and
-- ids, 8 bytes for each. Then there are
-- mode, which is "p" where nothing is recorded;
-- own, how many units of these takes were there before, denied, whether these are of a denial, and at, their score;
-- entries; units; extra, how many of the units are weights; oldest, the score of the oldest entry, false if there is
--   none, nil if it is not known any more;
-- mark, kept, extend: what marked.lua knows of marks;
-- shift, by how much scores are higher than stamps; now and stamp as such scores; logKeep, how long entries stay (us);
--   logTtl (ms);
-- future, whether an entry from the future was seen;
-- admitted, how many takes; new, units that were added;
-- and what is replied: wait, shadow, used and resets.

local function scoreAt(key, rank)
  return (call('ZRANGE', key, rank, rank, 'WITHSCORES')[2] or 0) + 0
end

-- find looks for takes that were executed before.
local function find(log)
  local key, ids, cost, own = log.key, log.ids, log.cost, 1
  log.own, log.denied, log.at = 0, false, false
  local since = call('ZSCORE', key, ids:sub(1, 8))
  if since and log.upTo then
    own = weightChanges and 1 + weightChanges().weightOf(key, ids, since % far) or 1
  elseif since then
    while own < log.takes and call('ZSCORE', key, ids:sub(8 * own + 1, 8 * own + 8)) do own = own + 1 end
    own = own * cost
  elseif log.asked == 'd' then
    since, own = call('ZSCORE', key, ids .. '\0'), cost
    log.denied = since and true or false
  end
  if since then log.own, log.at = own, since + 0 end
end

-- look finds out what a log holds before its takes, how many units each window holds, without own ones, and how many
-- takes fit into all of them. It returns false if the log has a mark and cannot be decided here.
local function look(log)
  if not read(log) then return false end
  local oldest, units, own, at, cost, quotas, used =
    log.oldest, log.units, log.own, not log.denied and log.at, log.cost, log.quotas, log.used
  local windows, current, deciding, admitted = log.windows, log.now, log.deciding, log.takes
  for i = 1, log.limits do
    local opens, held = current - windows[i], 0
    if oldest and oldest > opens then
      held = units
    elseif oldest then
      held = call('ZCOUNT', log.key, opens + 1, '+inf')
      if log.extra > 0 then held = held + weights().sumSince(log.key, opens + 1 - log.shift, log.extra) end
    end
    if at and at > opens then held = held > own and held - own or 0 end
    used[i] = held
    if i <= deciding then
      local fit = math.floor((quotas[i] - held) / cost)
      admitted = fit < admitted and fit or admitted
    end
  end
  log.admitted = admitted > 0 and admitted or 0
  return true
end

-- add adds takes. The members of their entries end with ending. It returns how many of their units were there already.
local function add(log, takes, ending)
  local key, stamp, ids, cost = log.key, log.stamp, log.ids, log.cost
  if cost > 1 or log.upTo and takes > 1 then return weightChanges().addTakes(log, takes, ending) end
  if takes == 1 then return 1 - call('ZADD', key, 'NX', stamp, ids:sub(1, 8) .. ending) end
  local batch = {}
  for t = 1, takes do batch[2 * t - 1], batch[2 * t] = stamp, ids:sub(8 * t - 7, 8 * t) end
  return takes - call('ZADD', key, 'NX', unpack(batch))
end

-- record recognizes takes that were sent again because their reply was lost, and records the others, of which the first
-- ones are admitted. It returns whether the log has to be looked at once more.
local function record(log)
  local mode, cost, own = log.mode, log.cost, log.own
  log.new = 0
  if mode == 'r' then log.admitted = log.takes end
  if own > 0 then
    log.admitted = log.denied and 0 or log.upTo and own or math.max(log.admitted, own / cost)
  elseif (log.admitted < log.takes or mode == 'd') and mode ~= 'p' then -- a denial that was recorded stays one
    find(log)
    if log.own > 0 then return true end
  end
  -- ZADD comes first: where memory is short it is refused before anything has changed.
  if mode == 'p' then
    -- nothing is added
  elseif not log.denied and log.admitted * cost > own then
    local there = add(log, log.admitted, '')
    log.new = log.admitted * cost - own
    if there > own then
      call('PEXPIRE', log.key, log.logTtl)
      find(log)
      return true
    end
  elseif mode == 'd' and own == 0 and log.admitted == 0 and cost <= log.least then
    add(log, 1, '\0')
    log.new = cost
  end
  return false
end

-- drop removes the entries up to a score. It leaves those beyond some thousands to the next takes.
local function drop(log, opens)
  local key, entries, most, removed = log.key, log.entries, 2 * many, nil
  if log.extra > 0 then
    if entries > most then opens = math.min(opens, scoreAt(key, most - entries - 1)) end
    removed, log.extra = weightChanges().drop(key, opens, log.shift, log.extra)
  elseif entries > most and scoreAt(key, most - entries) <= opens then
    removed = call('ZREMRANGEBYRANK', key, -entries, most - entries - 1)
  else
    removed = call('ZREMRANGEBYSCORE', key, '1', opens)
  end
  log.entries, log.oldest = entries - removed, nil
end

-- trim sets the TTL of a log to which units were added, and removes its oldest units. It returns an error, or nil.
local function trim(log)
  local key, entries, oldest, largest = log.key, log.entries, log.oldest, log.largest
  local armed = redis.pcall('PEXPIRE', key, log.logTtl)
  if type(armed) == 'table' and armed.err then
    if log.units == 0 then call('UNLINK', key) end -- without a TTL the entry would never leave
    return armed
  end
  log.entries = entries + (log.upTo and 1 or log.new / log.cost)
  log.future = log.future or oldest and oldest > log.now
  if oldest and oldest <= log.now - log.logKeep then drop(log, log.now - log.logKeep) end
  local bound = log.mode == 'r' and math.max(largest, 100000) or largest
  if (log.mode == 'r' or log.admitted == 0) and log.entries + log.extra > bound then
    local removed
    if log.extra > 0 then
      removed, log.extra = weightChanges().dropToUnits(key, bound, log.entries, log.shift, log.extra)
    else
      removed = call('ZREMRANGEBYRANK', key, -log.entries, -bound - 1)
    end
    log.entries, log.oldest = log.entries - removed, nil
  end
  log.units = log.entries + log.extra
end

-- longest returns how long limits deny the cost, -1 if one always does. counted units count beside those used, and
-- skipped ones as if they were not in the log.
local function longest(log, from, to, counted, skipped)
  local quotas, cost, wait = log.quotas, log.cost, 0
  for i = from, to do
    if cost > quotas[i] then
      wait = -1
    elseif wait >= 0 and log.used[i] + counted + cost > quotas[i] then
      -- A limit denies while the unit that must leave is in its window: with quota 5 and cost 1, the fifth newest.
      local unit = quotas[i] - cost + 1 + skipped
      local instant = log.extra > 0 and weights().unitAt(log.key, unit, log.shift) or scoreAt(log.key, -unit)
      log.future = log.future or instant > log.now
      wait = math.max(wait, math.min(instant, log.now) + log.windows[i] - log.now)
    end
  end
  return wait
end

-- repair moves entries from the future to the present, so that they leave in one window at most. A clock that has
-- stepped back leaves such entries, for instance in a failover.
local function repair(log)
  local key, stamp = log.key, log.stamp
  local late = call('ZRANGEBYSCORE', key, '(' .. stamp, '+inf')
  for i = 1, #late do call('ZADD', key, 'XX', stamp, late[i]) end
  if #late > 0 then call('PEXPIRE', key, log.logTtl) end
  if log.extra > 0 then weightChanges().moveTo(key, now) end
end

-- finish trims the log, and finds out the rest of what is replied. It returns an error, or nil.
local function finish(log)
  local key, new, limits, deciding = log.key, log.new, log.limits, log.deciding
  local mine = log.denied and 0 or log.own + new -- what was trimmed for a denied take is not known any more
  if limits > deciding then log.shadow = longest(log, deciding + 1, limits, 0, mine) end
  if new > 0 then
    local failed = trim(log)
    if failed then return failed end
    if extend then extend(log) end
  end
  log.wait = 0
  if log.admitted < log.takes and not (log.upTo and log.admitted > 0) then
    log.wait = longest(log, 1, deciding, mine, 0)
    -- With several limits, none of them may look at the entry from the future.
    log.future = log.future or limits > 1 and log.wait >= 0 and log.units > 0 and scoreAt(key, '-1') > log.now
    if log.wait == 0 then log.wait = 1 end -- if they are sent again so late that there is room by now
  end
  local at = log.at
  for i = 1, limits do
    local window, held, reset = log.windows[i], log.used[i], 0
    local opens = log.now - window
    if new > 0 or at and at > opens then held = math.min(held + mine, log.units) end
    if held == new and new > 0 then
      reset = window
    elseif held > 0 then
      log.oldest = log.oldest or scoreAt(key, -log.entries)
      local since = log.oldest
      if since <= opens then
        since = call('ZRANGEBYSCORE', key, opens + 1, '+inf', 'WITHSCORES', 'LIMIT', '0', '1')[2] or 0
      end
      reset = math.max(0, math.min(since - opens, window))
    end
    log.resets[i] = reset
  end
  if log.future and log.mode ~= 'p' then repair(log) end
end

-- settle records as many takes as are admitted, or as many as share then admits of them, and finishes. It returns an
-- error, or nil.
local function settle(log, share)
  repeat
    if share then share(log) end
  until not (record(log) and look(log))
  return finish(log)
end
