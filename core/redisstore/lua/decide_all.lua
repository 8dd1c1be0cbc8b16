-- Decides about a request over several logs in all cases that the short path leaves undecided.
-- Expects logs, requests, plain, reply, call, now, stamp, far, many, and what unmarked.lua or marked.lua provides.
-- Sets decideAll, and provides readLogs. Limits of other algorithms than the sliding log are those of
-- joint_weighted.lua.
-- include log
local all = {} -- the logs of a request
local asked, upTo, takes, cost, ids, each -- the request: its mode, what ids.lua provides, the cost of each log or nil
-- How many takes fit into all logs; how many were executed before; whether a log has recorded their denial before.
local least, earlier, denied

-- readLogs reads what is asked of each log. counterAt reads what is asked of a limit that is no sliding log.
local function readLogs(counterAt)
  local after = requests + 1
  for j = 1, logs do
    local n, limits = after, ARGV[after]
    if limits:match('^%a') then
      all[j], after = counterAt(n)
    else
      local slots = limits:sub(1, 1) == '0'
      limits = limits + 0
      -- include plan
      all[j], after, log.slots = log, first + 2 * limits, slots
    end
  end
  asked, upTo = all[logs].asked, all[logs].upTo
end

-- fit finds out how many takes a log has room for beside those that it has recorded before. It returns how many these
-- are.
local function fit(log)
  local room, there = log.denied and 0 or log.admitted, log.denied and 0 or log.own / log.cost
  if log.slots and upTo then room, there = room > 0 and takes or 0, there > 0 and takes or 0 end -- one slot is enough
  log.room = room
  return there
end

-- lookAtAll looks at all logs, and finds out how many takes fit into all of them. before is whether the takes were
-- executed before. It returns false if a log has a mark that is not known here.
local function lookAtAll(base, before)
  local known = true
  least, earlier, denied = takes, 0, false
  for j = 1, logs do
    local log = all[j]
    local slots = log.slots
    log.key, log.takes, log.ids = KEYS[base + j], slots and upTo and 1 or takes, ids
    log.cost = slots and 1 or each and struct.unpack('>I4', each, 4 * j - 3) or cost
    log.own, log.denied, log.at, log.mode, log.future = 0, false, false, 'p', false
    if before and not log.look then find(log) end
    if (log.look or look)(log) then
      local there = fit(log)
      least, earlier = math.min(least, math.max(log.room, there)), math.max(earlier, slots and upTo and 0 or there)
      denied = denied or log.denied
    else
      known = false
    end
  end
  return known
end

-- areKnown reports whether a log has takes of the request.
local function areKnown()
  for j = 1, logs do
    if not all[j].look then find(all[j]) end
    if all[j].own > 0 then return true end
  end
  return false
end

-- share tells a log how many of the takes it records.
local function share(log)
  local slots, there = log.slots, fit(log)
  log.mode, log.admitted = 'p', log.room
  if denied or asked == 'p' or asked == 'r' and slots then return end
  if asked ~= 'r' and least == 0 and log.room > 0 then return end -- another log denies all takes
  log.mode, log.admitted = asked == 'd' and slots and 'c' or asked, math.min(least, math.max(log.room, there))
  if slots and upTo then log.admitted = math.min(log.admitted, 1) end
end

-- decideAll decides about a request and writes its whole reply behind reply[r]. It returns where that ends, and an
-- error or nil; and whether a log of this request has a mark, or of one before it. Nothing is recorded before all logs
-- have been looked at.
decideAll = function(id, base, r, again)
  each = #id % 4 == 1 and id:sub(-4 * logs)
  if each then id = id:sub(1, #id - #each - 1) end
  -- include ids
  local known = not again and lookAtAll(base, false)
  if plain then
    r = r + 1
    reply[r] = 0 -- not a short reply
  end
  if not known then
    reply[r + 1] = -1 -- for joint_weighted
    for i = r + 2, #reply do reply[i] = nil end -- of the short path
    return r + 1, nil, true
  end
  if asked ~= 'p' and asked ~= 'r' and (least < takes or asked == 'd') and areKnown() then
    lookAtAll(base, true)
    -- A log has recorded takes only because all had room, so they count as admitted even if a log has lost them.
    least = upTo and earlier > 0 and earlier or math.max(least, earlier)
  end
  for j = 1, logs do
    if asked == 'r' and not all[j].slots then least = takes end
  end
  reply[r + 1], r = least, r + 1
  for j = 1, logs do
    local log = all[j]
    local failed = (log.settle or settle)(log, share)
    if failed then return r, failed end
    local admitted, wait, shadow, used, resets = log.admitted, log.wait, log.shadow, log.used, log.resets
    if upTo and (log.room > 0 or least > 0) then
      admitted, wait = math.max(least, 1), 0
    elseif asked == 'c' or asked == 'd' then
      admitted = least
      if least == takes or log.room > least then admitted, wait = takes, 0 end
    end
    -- include whole
  end
  return r
end
