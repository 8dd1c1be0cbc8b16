-- The short path of requests of any cost, over logs of one limit each: all logs record a request, or none.
-- Expects logs, how many a request has; id and base, the request's id and the number of keys before its own; quotas,
-- windows and ttls (ms) of its limits; whole, how many numbers come before those of the first log in a whole reply;
-- plain; varies; reply, r; what clock.lua and weights.lua provide. Sets ask; and lastOf, the last entry of each log if
-- this path has added it: whatever else decides empties that, since it may add entries of the same instant.
local twice, summaryScore = textOf(2 * now), '-' .. string.char(stamp:byte() + 4) .. stamp:sub(2) -- -far - now
local keys, pack, parse, sub = KEYS, struct.pack, struct.unpack, string.sub
local cutOf = {} -- up to which score entries have left, as text
lastOf = {}

-- answer writes what is replied about the log with number j, and returns said.
local function answer(j, said, room, wait, held, left)
  if plain and said == 1 then
    reply[r + j] = held * (windows[j] + 1) + left + 1
  else
    local at = r + whole + 4 * j - 4
    reply[at + 1], reply[at + 2], reply[at + 3], reply[at + 4] = room and 1 or 0, wait, held, left
  end
  return said
end

-- arm sets the TTL of a log. Without one, an entry of a new log would never leave.
local function arm(key, ttl, isNew)
  local armed = redis.pcall('PEXPIRE', key, ttl)
  if armed ~= 1 and isNew then call('UNLINK', key) end
  return armed
end

-- askUnit is ask for one unit of a log without weights. It returns nil if the log has some.
local function askUnit(j, said, key, quota, window, ttl)
  local size, plain, cut, leaving = call('ZCARD', key), ttl + 0, cutOf[j], nil
  if size == 0 then
    said = ask(j + 1, said)
    if said == 1 then
      call('ZADD', key, stamp, sub(id, 1, 8))
      said = arm(key, ttl, true)
    end
    return answer(j, said, true, 0, 0, said == 1 and window or 0)
  end
  -- include one_look
  if sign == 0 then return oldest + 0 >= 0 and 0 or nil end
  said = ask(j + 1, sign < said and sign or said)
  if said == 1 then
    if call('ZADD', key, 'NX', stamp, sub(id, 1, 8)) == 0 then return 0 end
    -- include one_added
    cutOf[j] = cut
  elseif said == -1 then
    if call('ZSCORE', key, sub(id, 1, 8)) then return 0 end
    -- include one_kept
  end
  return answer(j, said, sign > 0, sign > 0 and 0 or left, held, left)
end

-- ask looks at the log with number j of the request, then at all logs after it, and only then records the units. said
-- is 1 if the logs before it have room, and -1 if one of them denies. It returns the same of all logs, 0 if this path
-- does not decide, or an error.
ask = function(j, said)
  if j > logs then return said end
  local key, quota, window, cost = keys[base + j], quotas[j], windows[j], 1
  if #id > 8 then cost = parse('>I4', id, #id == 12 and 9 or 6 + 4 * j) end
  local single, member = cost == 1 and not varies, nil
  if not single or logs == 1 then member = call('ZRANGE', key, '0', '0')[1] end -- mostly a log with weights
  local told = single and not (member and #member >= 32) and askUnit(j, said, key, quota, window, ttls[j])
  if told then return told end
  member = member or call('ZRANGE', key, '0', '0')[1]
  local total, first, newest, kept, gone, lag, room, open = 0, now, 0, window, 0, 0, 8, ''
  if not member and cost == 1 or member and #member < 32 then return 0 end -- it is to get a mark; an entry or a mark
  if member then
    total, first, newest, kept, gone, lag, room = parse(layout, member)
    total, open = 2 ^ 53 - total, sub(member, 33)
  end
  local left, wait, summary = first - now + window, 0, nil
  if kept ~= window or room >= 128 or cost > quota then return 0 end
  if newest >= now then -- Lua compares texts as the server's locale does
    local last = newest == now and open ~= '' and lastOf[key]
    if not last or sub(last, 1, 2) ~= sub(id, 1, 2) or parse('>I6', last, 3) >= parse('>I6', id, 3) then return 0 end
  end
  local fits = total + cost <= quota
  said = (fits or left > 0) and ask(j + 1, fits and said or -1) or 0
  if said == 1 and left <= 0 then
    summary = readSummary(member)
    weights().drop(key, summary, now - window, 2, 0)
    total, first, gone, open = summary.total, summary.first, summary.gone, summary.open
    if total == 0 then first = now end
    left = first - now + window
  elseif left <= 0 then
    return said == -1 and 0 or said -- what has expired counts no more, and a denial removes nothing
  end
  if said == 1 and left > 0 then
    lag, room = lag + now - newest, room - 1
    if lag > 900000 then lag = 0 end
    local new = pack('>I7I7I7I6bI3Bc0I4', 2 ^ 53 - total - cost, first, now, window, gone, lag, room, open, cost - 1)
    if call('ZADD', key, 'NX', twice, sub(id, 1, 8), summaryScore, new) == 2 then
      lastOf[key], summary = id, nil
      said = lag > 0 and 1 or arm(key, ttls[j], not member)
      if room == 0 then weights().save(key, readSummary(new)) end
    else
      said, summary = 0, summary or readSummary(member)
    end
  elseif said == 1 then
    said = 0 -- drop has left expired entries
  elseif said == -1 and call('ZSCORE', key, sub(id, 1, 8)) then
    said = 0
  elseif said == -1 and not fits then
    wait = weights().unitAt(key, readSummary(member), quota - cost + 1, 2) - now + window
  end
  if summary then weights().save(key, summary) end
  return answer(j, said, fits, wait, total, (total > 0 or said == 1) and left or 0)
end
