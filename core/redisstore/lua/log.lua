-- Decides about the takes on one log in three steps: look, record and finish. The windows are computed in look, longest
-- and finish, and in the short paths.
-- Expects call, now, many, and what unmarked.lua or marked.lua provides.

local function stampAt(rank) return (call('ZRANGE', key, rank, rank, 'WITHSCORES')[2] or 0) / scale end

-- find looks for takes that were executed before.
local function find()
  local there, since = 1, call('ZSCORE', key, takes > 1 and ids:sub(1, 8) or ids)
  own, denied, at = 0, false, false
  if since and upTo then
    there = read() and summary and 1 + weights().splice(key, summary, ids, since / scale, scale, 4, true) or 1
  elseif since then
    while there < takes and call('ZSCORE', key, ids:sub(8 * there + 1, 8 * there + 8)) do there = there + 1 end
    there = there * cost
  elseif mode == 'd' then
    since, there = call('ZSCORE', key, ids .. '\0'), cost
    denied = since and true or false
  end
  if since then own, at = there, since + 0 end
end

-- look finds out what a log holds before its takes, how many units each window holds, without own ones, and how many
-- takes fit into all of them. It returns false if the log has a mark and cannot be decided here.
local function look()
  if not read() then return false end
  local since, room = not denied and at and at / scale, takes
  for i = 1, last do
    local opens, held = now - windows[i], 0
    if oldest and oldest > opens then
      held = entries + extra
    elseif oldest then
      held = call('ZCOUNT', key, scale * (opens + 1), '+inf')
      if extra > 0 then held = held + weights().sumSince(key, summary, opens + 1, scale) end
    end
    if since and since > opens then held = held > own and held - own or 0 end
    used[i] = held
    if i <= deciding then
      local fit = quotas[i] - held
      if cost > 1 then fit = math.floor(fit / cost) end
      room = fit < room and fit or room
    end
  end
  admitted = room > 0 and room or 0
  return true
end

-- record recognizes takes that were sent again because their reply was lost, and records the others, of which the first
-- ones are admitted. share, if there is one, then finds out how many of these the log records. It returns how many
-- units were added.
local function record(share)
  if share then share() end
  local n, denies, there = admitted, false, nil -- how many takes to add, and whether one is denied
  if mode == 'r' then admitted = takes end
  if own > 0 then
    admitted = denied and 0 or upTo and own or math.max(admitted, own / cost)
  elseif (admitted < takes or mode == 'd') and mode ~= 'p' then -- a denial that was recorded stays one
    find()
    if own > 0 and look() then return record(share) end
  end
  if mode == 'p' then return 0 end
  if not denied and admitted * cost > own then
    n = admitted
  elseif mode == 'd' and own == 0 and admitted == 0 and cost <= smallest then
    n, denies = 1, true
  else
    return 0
  end
  -- ZADD comes first: where memory is short it is refused before anything has changed.
  if weighs then
    summary = summary or weights().begin(key, mark, kept or keep, scale)
    there, extra = weights().addTakes(key, summary, now, scale, ids, n, cost, upTo, denies and '\0' or '', extra)
  elseif n == 1 then
    local id = takes > 1 and ids:sub(1, 8) or ids
    there = 1 - call('ZADD', key, 'NX', logStamp, denies and id .. '\0' or id)
  else
    local batch = {}
    for t = 1, n do batch[2 * t - 1], batch[2 * t] = logStamp, ids:sub(8 * t - 7, 8 * t) end
    there = n - call('ZADD', key, 'NX', unpack(batch))
  end
  if there <= own then return n * cost - own end
  call('PEXPIRE', key, logTtl)
  find()
  look()
  return record(share)
end

-- longest returns how long limits deny the cost, -1 if one always does. counted units count beside those used, and
-- skipped ones as if they were not in the log.
local function longest(from, to, counted, skipped)
  local most = 0
  for i = from, to do
    if cost > quotas[i] then
      most = -1
    elseif most >= 0 and used[i] + counted + cost > quotas[i] then
      -- A limit denies while the unit that must leave is in its window: with quota 5 and cost 1, the fifth newest.
      local unit = quotas[i] - cost + 1 + skipped
      local instant = unit == entries and skipped == 0 and oldest
      if extra > 0 then instant = weights().unitAt(key, summary, unit, scale) end
      instant = instant or stampAt(-unit)
      future = future or instant > now
      most = math.max(most, math.min(instant, now + longestLease) + windows[i] - now)
    end
  end
  return most
end

-- finish sets the TTL of a log to which units were added, and removes the entries that have left, those beyond some
-- thousands excepted, and units beyond those that the log keeps. It returns how long the takes are denied, also by
-- shadow limits, and an error, or nil.
local function finish(new)
  local mine = denied and 0 or own + new -- what was trimmed for a denied take is not known any more
  local wait, shadow = 0, last > deciding and longest(deciding + 1, last, 0, mine) or nil
  if new > 0 then
    local armed, ends, removed = redis.pcall('PEXPIRE', key, logTtl), now - logKeep, 0
    if armed ~= 1 then
      if entries == 0 then call('UNLINK', key) elseif summary then weights().save(key, summary) end
      return wait, shadow, armed -- without a TTL the entry would never leave
    end
    entries = entries + (upTo and 1 or new / cost)
    if oldest and oldest > now then future, oldest = true, now end -- which the new ones are at
    if oldest and oldest <= ends then
      local most = 2 * many
      if summary then
        if entries > most then ends = math.min(ends, stampAt(most - entries - 1)) end
        removed, extra = weights().drop(key, summary, ends, scale, entries)
      elseif entries > most and stampAt(most - entries) <= ends then
        removed = call('ZREMRANGEBYRANK', key, -entries, most - entries - 1)
      else
        removed = call('ZREMRANGEBYSCORE', key, '1', scale * ends)
      end
      entries, oldest = entries - removed, nil
    end
    local keeps = mode == 'r' or deciding == 0 -- units beyond those that the log keeps are removed
    local bound = keeps and largest < 100000 and 100000 or largest
    if (keeps or admitted == 0) and entries + extra > bound then
      if summary then
        removed, extra = weights().dropToUnits(key, summary, bound, scale, entries)
      else
        removed = call('ZREMRANGEBYRANK', key, -entries, -bound - 1)
      end
      entries, oldest = entries - removed, nil
    end
    if extend then extend() end
  end
  if admitted < takes and not (upTo and admitted > 0) then
    wait = longest(1, deciding, mine, 0)
    -- With several limits, none of them may look at the entry from the future.
    future = future or last > 1 and wait >= 0 and entries > 0 and stampAt('-1') > now
    if wait == 0 then wait = 1 end -- if they are sent again so late that there is room by now
  end
  for i = 1, last do
    local window, held, units, left = windows[i], used[i], entries + extra, 0
    local opens = now - window
    if new > 0 or at and at / scale > opens then held = held + mine < units and held + mine or units end
    if held == new and new > 0 then
      left = window
    elseif held > 0 then
      oldest = oldest or stampAt(-entries)
      left = oldest - opens
      if left <= 0 then
        local since = call('ZRANGEBYSCORE', key, scale * (opens + 1), '+inf', 'WITHSCORES', 'LIMIT', '0', '1')[2]
        left = (since or 0) / scale - opens
      end
      left = left < 0 and 0 or math.min(left, window + longestLease)
    end
    resets[i] = left
  end
  if mode ~= 'p' and (future or summary and summary.newest > now + longestLease) then
    -- A clock that has stepped back leaves entries in the future, for instance in a failover. What is later than any
    -- booking is moved to where bookings are, so that it leaves in one window and a second at most.
    local most = textOf(scale * (now + longestLease))
    local late = call('ZRANGEBYSCORE', key, '(' .. most, '+inf')
    if summary and #late > 0 then weights().moveTo(key, summary, now + longestLease, scale) end
    if summary then future, summary.newest = true, math.min(summary.newest, now + longestLease) end
    for i = 1, #late do call('ZADD', key, 'XX', most, late[i]) end
    if #late > 0 then call('PEXPIRE', key, logTtl + 1000) end
  end
  if summary and (new > 0 or future and mode ~= 'p') then weights().save(key, summary) end
  return wait, shadow
end
