-- Changes what takes have cost, each at its instant, or merges entries of other logs: then it adds those that the logs
-- do not have. KEYS: the logs, one for each take. ARGV: for each take its id, and in 4 bytes each what it may have cost
-- and what it costs from now on (0: nothing); then, in 8 bytes, how long ago it was recorded (us), or -1 not to search
-- the log for another cost. An argument may have those of several takes. Then window (us) and TTL (ms) of the logs, 0
-- unless entries are merged. Reply: 1 for each take.
-- include clock
-- include log
local log, window, ttl = newLog(), ARGV[#ARGV - 1] + 0, ARGV[#ARGV] + 0

-- account changes the units of a log, to which an entry was added, or which has lost one.
local function account(key, change)
  if call('ZSCORE', key, '') then
    if call('ZINCRBY', key, -change, '') + 0 >= 0 then log.recount(key) end
  elseif change > 1 then
    call('ZADD', key, 1 - change - call('ZCARD', key), '')
  end
end

-- add adds an entry.
local function add(key, at, id, cost)
  if call('ZADD', key, 'NX', at, log.memberOf(id, cost)) == 1 then account(key, cost) end
end

-- change changes the cost of an entry, or removes it if the cost is 0.
local function change(key, member, at, id, cost)
  if member == log.memberOf(id, cost) then return end
  if cost > 0 then add(key, at, id, cost) end -- first, for an empty log would lose its TTL
  call('ZREM', key, member)
  account(key, -log.costOf(member))
end

-- find looks for what a log has of a take: an entry of cost a, b or 1, or a denial. It returns the member and its
-- score, or nil.
local function find(key, id, a, b)
  local first, denied = log.memberOf(id, a), id .. '\0'
  local at = call('ZSCORE', key, first)
  if at then return first, at end
  local others = {id, log.memberOf(id, b), denied, log.memberOf(denied, a), log.memberOf(denied, b)}
  local scores = call('ZMSCORE', key, unpack(others))
  for i = 1, #others do if scores[i] then return others[i], scores[i] end end
end

-- search is find for any cost, among the entries of two seconds before and after an instant. A take for at most so many
-- units that was executed twice may have two entries: it removes all but one.
local function search(key, id, at)
  local low, high, found = '(' .. text(at - 2000000), text(at + 2000000), {}
  local rank, last = call('ZCOUNT', key, '-inf', low), call('ZCOUNT', key, '-inf', high) - 1
  while rank <= last do
    local page = call('ZRANGE', key, rank, math.min(rank + atOnce - 1, last))
    for i = 1, #page do if page[i]:sub(1, 8) == id then found[#found + 1] = page[i] end end
    rank = rank + atOnce
  end
  for i = 2, #found do change(key, found[i], nil, id, 0) end
  if found[1] then return found[1], call('ZSCORE', key, found[1]) end
end

local reply, asked = {}, table.concat(ARGV, '', 1, #ARGV - 2)
for k = 1, #KEYS do
  local key, id, was, cost, age = KEYS[k], struct.unpack('>c8I4I4i8', asked, 24 * k - 23)
  local member, at = find(key, id, was, cost)
  if not member and age >= 0 and window == 0 then member, at = search(key, id, now - age) end
  if member then
    change(key, member, at, id, cost)
  elseif window > 0 and cost > 0 and age < window then
    add(key, text(now - age), id, cost)
    local failed = arm(key, ttl)
    if failed then return failed end
  end
  reply[k] = 1
end
return reply
