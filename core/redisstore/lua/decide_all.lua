-- Decides about a request over several logs in all cases that the short path leaves undecided.
-- Expects logs, requests, plain, reply, call, now, stamp, far, many. Provides steps, readPlans and the function
-- decideAll. Limits of other algorithms than the sliding log are those of joint_weighted.lua.
-- include takes
-- include plan
-- include whole
-- include units
-- include log
local plans, all = {}, {} -- what is asked of each log; the logs of the request
local asked, upTo, takes, cost, ids -- the request: its mode, and what takesOf returns
-- How many takes fit into all logs; how many were executed before; whether a log has recorded their denial before.
local least, earlier, denied

-- readPlans reads what is asked of each log. counterAt reads what is asked of a limit that is no sliding log.
local function readPlans(counterAt)
  local n = requests + 1
  for j = 1, logs do
    local limits = ARGV[n]
    if limits:match('^%a') then
      plans[j], n = counterAt(n)
    else
      plans[j], n = planAt(n + 1, limits + 0)
      plans[j].slots = limits:sub(1, 1) == '0'
    end
  end
  asked, upTo = plans[logs].mode, plans[logs].upTo
end

-- fit finds out how many takes a log has room for beside those that it has recorded before, and how many these are.
local function fit(log)
  local room, there = log.denied and 0 or log.admitted, log.denied and 0 or log.own / log.cost
  if log.one then room, there = room > 0 and takes or 0, there > 0 and takes or 0 end
  log.room, log.there = room, there
end

-- lookAtAll looks at all logs, and finds out how many takes fit into all of them. before is whether the takes were
-- executed before. It reports whether a log has a mark that is not known here.
local function lookAtAll(base, before)
  local marked = false
  least, earlier, denied = takes, 0, false
  for j = 1, logs do
    local plan = plans[j]
    local one = plan.slots and upTo -- one slot is enough for all units
    local log = steps.newLog(KEYS[base + j], plan, one and 1 or takes, plan.slots and 1 or cost, ids)
    all[j], log.one, log.mode = log, one, 'p'
    if before and not plan.look then steps.find(log) end
    local at = plan.look or steps.look
    at(log)
    if not plan.look then steps.count(log) end
    fit(log)
    least = math.min(least, math.max(log.room, log.there))
    earlier = math.max(earlier, one and 0 or log.there)
    denied, marked = denied or log.denied, marked or log.marked
  end
  return marked
end

-- areKnown reports whether a log has takes of the request.
local function areKnown()
  for j = 1, logs do
    if not plans[j].look then steps.find(all[j]) end
    if all[j].own > 0 then return true end
  end
  return false
end

-- share tells a log how many of the takes it records.
local function share(log)
  local slots = log.plan.slots
  fit(log)
  log.mode, log.admitted = 'p', log.room
  if denied or asked == 'p' or asked == 'r' and slots then return end
  if asked ~= 'r' and least == 0 and log.room > 0 then return end -- another log denies all takes
  log.mode, log.admitted = asked == 'd' and slots and 'c' or asked, math.min(least, math.max(log.room, log.there))
  if log.one then log.admitted = math.min(log.admitted, 1) end
end

-- writeLog writes what is replied about a log behind reply[r], and returns where it ends.
local function writeLog(r, log)
  local admitted, wait = log.admitted, log.wait
  if upTo and (log.room > 0 or least > 0) then
    admitted, wait = math.max(least, 1), 0
  elseif asked == 'c' or asked == 'd' then
    admitted = least
    if least == takes or log.room > least then admitted, wait = takes, 0 end
  end
  return writeWhole(r, log, admitted, wait)
end

-- decideAll decides about a request and writes its whole reply behind reply[r]. It returns where that ends, and an
-- error or nil; and whether a log of this request has a mark, or of one before it. Nothing is recorded before all logs
-- have been looked at.
decideAll = function(id, base, r, again)
  takes, cost, ids = takesOf(id, upTo)
  local marked = again or lookAtAll(base, false)
  if plain then
    r = r + 1
    reply[r] = 0 -- not a short reply
  end
  if marked then
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
    if asked == 'r' and not plans[j].slots then least = takes end
  end
  reply[r + 1], r = least, r + 1
  for j = 1, logs do
    local failed = (plans[j].settle or steps.settle)(all[j], share)
    if failed then return r, failed end
    r = writeLog(r, all[j])
  end
  return r
end
