-- Decides about a request over several logs in all cases that the short path leaves undecided.
-- Expects logs, requests, plain, reply, call, now, stamp, many, and what unmarked.lua or marked.lua provides.
-- Sets decideAll, and provides readLogs. Limits of other algorithms than the sliding log are those of
-- joint_weighted.lua.
-- include log
local lookAtCounter, settleCounter -- of limits that are no sliding logs
local plans, states = {}, {} -- what is asked of each log, and what is known of it, while others are looked at
-- The request: its mode, how many takes it has, their cost, the cost of each log if these differ.
local asked, number, price, each
-- How many takes fit into all logs; how many were executed before; whether a log has recorded their denial before;
-- whether a log has slots, and for how many takes it has room; whether a limit is no sliding log.
local least, earlier, refused, slots, room, counts

-- readLogs reads what is asked of each log. counterAt reads what is asked of a limit that is no sliding log.
local function readLogs(counterAt)
  local after = requests + 1
  for j = 1, logs do
    local n, limits = after, ARGV[after]
    if limits:match('^%a') then
      plans[j], after = counterAt(n)
      counts = true
    else
      slots, limits = limits:sub(1, 1) == '0', limits + 0
      -- include plan
      plans[j] = {last, deciding, quotas, windows, keep, keepTtl, varied, smallest, largest, slots, {0}, {0}}
      asked, after = mode, first + 2 * limits
    end
  end
end

-- choose makes a log the one that is decided about. It returns what is known of a limit that is no sliding log, or nil.
local function choose(j, base)
  local plan = plans[j]
  last, deciding, quotas, windows, keep, keepTtl, varied, smallest, largest, slots, used, resets = unpack(plan, 1, 12)
  mode, key, takes, cost = asked, KEYS[base + j], number, each and struct.unpack('>I4', each, 4 * j - 3) or price
  if slots then takes, cost = upTo and 1 or takes, 1 end
  own, denied, at, logKeep, logTtl, future = 0, false, false, keep, keepTtl, false
  return plan.view and plan
end

-- fit finds out how many takes a log has room for beside those that it has recorded before. It returns how many these
-- are.
local function fit()
  local there = denied and 0 or own / cost
  room = denied and 0 or admitted
  if slots and upTo then room, there = room > 0 and number or 0, there > 0 and number or 0 end -- one slot is enough
  return there
end

-- lookAtAll looks at all logs, and finds out how many takes fit into all of them. before is whether the takes were
-- executed before. It returns false if a log has a mark that is not known here.
local function lookAtAll(base, before)
  least, earlier, refused = number, 0, false
  for j = 1, logs do
    local counter = choose(j, base)
    if before and not counter then find() end
    if counter then lookAtCounter(counter) elseif not look() then return false end
    local there = fit()
    least, refused = math.min(least, math.max(room, there)), refused or denied
    if there > earlier and not (slots and upTo) then earlier = there end
    states[j] = counter or {own, denied, at, entries, extra, oldest, mark, kept, extends, scale, logStamp, logKeep,
      logTtl, admitted, summary, weighs}
  end
  return true
end

-- areKnown reports whether a log has takes of the request.
local function areKnown(base)
  for j = 1, logs do
    if not choose(j, base) then find() end
    if own > 0 then return true end
  end
  return false
end

-- share finds out how many of the takes a log records.
local function share()
  local there = fit()
  mode, admitted = 'p', room
  if refused or asked == 'p' or asked == 'r' and slots then return end
  if asked ~= 'r' and least == 0 and room > 0 then return end -- another log denies all takes
  mode, admitted = asked == 'd' and slots and 'c' or asked, math.min(least, math.max(room, there))
  if slots and upTo then admitted = math.min(admitted, 1) end
end

-- decideAll decides about a request and writes its whole reply behind reply[r]. It returns where that ends, and an
-- error or nil; and whether a log of this request has a mark, or of one before it. Nothing is recorded before all logs
-- have been looked at.
decideAll = function(id, base, r, again)
  each = #id % 4 == 1 and id:sub(-4 * logs)
  if each then id = id:sub(1, #id - #each - 1) end
  -- include ids
  number, price = takes, cost
  local records = asked ~= 'p' and asked ~= 'r'
  local known = not again and lookAtAll(base, counts and records)
  if plain then
    r = r + 1
    reply[r] = 0 -- not a short reply
  end
  if not known then
    reply[r + 1] = -1 -- for joint_weighted
    for i = r + 2, #reply do reply[i] = nil end -- of the short path
    return r + 1, nil, true
  end
  if records and (counts or (least < number or asked ~= 'c') and areKnown(base)) then
    if not counts then lookAtAll(base, true) end
    -- A log has recorded takes only because all had room, so they count as admitted even if a log has lost them.
    least = upTo and earlier > 0 and earlier or math.max(least, earlier)
  end
  for j = 1, logs do
    if asked == 'r' and not plans[j][10] then least = number end -- unless all have slots
  end
  reply[r + 1], r = least, r + 1
  for j = 1, logs do
    local counter, wait, shadow, failed = choose(j, base), nil, nil, nil
    if counter then
      wait = settleCounter(counter)
    else
      own, denied, at, entries, extra, oldest, mark, kept, extends, scale, logStamp, logKeep, logTtl, admitted, summary,
        weighs = unpack(states[j], 1, 16)
      wait, shadow, failed = finish(record(share))
    end
    if failed then return r, failed end
    if upTo and (room > 0 or least > 0) then
      admitted, wait = math.max(least, 1), 0
    elseif asked == 'c' or asked == 'd' then
      admitted = least
      if least == number or room > least then admitted, wait = number, 0 end
    end
    -- include whole
  end
  return r
end
