-- account writes the units of a log after those of its entries have changed by some. counted is the score of '' before,
-- or false; cost is that of the entry that was added, if one was.
local function account(key, counted, change, cost)
  if not counted and cost <= 1 then return end
  local units = counted and change - counted or call('ZCARD', key) + cost - 1
  if units < 1 then recount(key) else call('ZADD', key, -units, '') end
end

-- add adds an entry.
local function add(key, at, id, cost)
  local counted = call('ZSCORE', key, '')
  account(key, counted, cost * call('ZADD', key, 'NX', at, memberOf(id, cost)), cost)
end

-- change changes the cost of an entry, or removes it if the cost is 0.
local function change(key, member, at, id, cost)
  local new = memberOf(id, cost)
  if member == new then return end
  local counted, added = call('ZSCORE', key, ''), 0
  if cost > 0 then added = call('ZADD', key, 'NX', at, new) end -- first, for an empty log would lose its TTL
  call('ZREM', key, member)
  account(key, counted, added * cost - costOf(member), cost)
end

-- find looks for what a log has of a take: an entry of cost a, b or 1, or a denial. It returns the member and its
-- score, or nil.
local function find(key, id, a, b)
  local first = memberOf(id, a)
  local at = call('ZSCORE', key, first)
  if at then return first, at end
  local denied = id .. '\0'
  local others = {id, memberOf(id, b), denied, memberOf(denied, a), memberOf(denied, b)}
  local scores = call('ZMSCORE', key, unpack(others))
  for i = 1, #others do if scores[i] then return others[i], scores[i] end end
end

-- search is find for any cost, among the entries of two seconds before and after an instant. A take for at most so many
-- units that was executed twice may have two entries: it removes all but one.
local function search(key, id, at)
  local low, high, found = text(at - 2000000), text(at + 2000000), {}
  local rank, last = call('ZCOUNT', key, '-inf', '(' .. low), call('ZCOUNT', key, '-inf', high) - 1
  while rank <= last do
    local page = call('ZRANGE', key, rank, math.min(rank + atOnce - 1, last))
    for i = 1, #page do if page[i]:sub(1, 8) == id then found[#found + 1] = page[i] end end
    rank = rank + atOnce
  end
  for i = 2, #found do change(key, found[i], nil, id, 0) end
  if found[1] then return found[1], call('ZSCORE', key, found[1]) end
end
