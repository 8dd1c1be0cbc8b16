-- Decides requests over the same limits, each of which asks several logs, or in any mode: all of its logs record it, or
-- none. KEYS: the logs, one request after the other. ARGV: for each request the ids of its takes, 8 bytes each; then,
-- unless each costs 1, a byte 0 and in 4 bytes what a take costs in the first log, in the second one, and so on. Only
-- in the mode c has a request several takes. Then, for each limit, a letter, its quota, its window (us) and the TTL of
-- its log (ms). The letter is l for a sliding log, p for one of permits, or that of a counter, of which window and TTL
-- are what counters.lua expects; a capital if there is always room. Then the mode (c: charge, p: peek, r: record, d:
-- charge, and count denials, m: at most), the share of the mode m, and the number of limits.
-- Reply, for each request: how many takes are admitted, in the mode m how many units; then, for each limit, used,
-- reset, and how long the next take must wait (0 if it need not, or never will fit); of a counter the period as well,
-- and what that has in nanoseconds beside. Or, for one take in the mode c: a negative number for each log,
-- -(used * (window + 1) + reset + 1), where one of them is used up if it is denied.
-- include clock
-- include log
-- include counters
local logs = ARGV[#ARGV] + 0
local requests, mode, share = #KEYS / logs, ARGV[#ARGV - 2], ARGV[#ARGV - 1] + 0
local records = mode ~= 'p'
local reply, r = {}, 0

local limits = {}
local isShort, longest = mode == 'c', nil -- whether a reply may be short; the log with the longest window
local future -- what was recorded before the clock was set back
for j = 1, logs do
  local at = requests + 4 * j - 3
  local l = {kind = ARGV[at], quota = ARGV[at + 1] + 0, window = ARGV[at + 2] + 0, ttl = ARGV[at + 3], cost = 1}
  limits[j] = l
  isShort = isShort and (l.kind == 'l' or l.kind == 'p') and (l.quota + 1) * (l.window + 1) < 9007199254740992
  l.isLog = isShort or l.kind:find('[lpL]')
  if l.isLog and (not longest or l.window > limits[longest].window) then longest = j end
end

-- brief decides a take of one unit in the mode c whose logs have no entries of more units or of the future. It reports
-- whether it did, and returns an error or nil.
local function brief(base, id)
  local full -- a log without room
  for j = 1, logs do
    local l, key = limits[j], KEYS[base + j]
    local size, window, left = call('ZCARD', key), l.window, l.window
    if size > 0 then
      local first = call('ZRANGE', key, '0', '0', 'WITHSCORES')
      left = first[2] - now + window
      if left > window or first[1] == '' or size > atOnce and left <= 0 then return false end
      if left <= 0 then
        size = size - call('ZREMRANGEBYSCORE', key, '1', text(now - window))
        left = size > 0 and call('ZRANGE', key, '0', '0', 'WITHSCORES')[2] - now + window or window
      end
      if size > l.quota or left > window then return false end
      if size == l.quota then full = full or key end
    end
    l.units, l.left = size, left
  end
  if full then -- unless it was recorded before, or the clock was set back, see log.lua
    future = future or '(' .. text(now + 1000000)
    if call('ZSCORE', KEYS[base + longest], id) or call('ZCOUNT', full, future, '+inf') > 0 then return false end
  end
  for j = 1, logs do
    local l, key = limits[j], KEYS[base + j]
    local size, left = l.units, full and l.units == 0 and 0 or l.left
    if not full then
      if call('ZADD', key, 'NX', stamp, id) == 0 then size = size - 1 end
      local failed = arm(key, l.ttl)
      if failed then return true, failed end
    end
    reply[r + j] = -(size * (l.window + 1) + left + 1)
  end
  r = r + logs
  return true
end

-- newDecide returns a function that decides about any request.
local function newDecide()
  local log, counters, call, priced = nil, nil, call, false -- priced: whether a cost is not 1
  for j = 1, logs do
    local l = limits[j]
    if l.isLog then
      log = log or newLog()
      l.keep = (mode ~= 'd' or l.kind == 'L') and math.max(l.quota, 100000) or l.quota
      l.trims = records and l.kind == 'L' or mode == 'r' and l.kind == 'l'
    else
      counters = counters or newCounters()
      l.counter = counters[l.kind:lower()](l.quota, l.window, l.ttl)
    end
    if l.kind ~= l.kind:lower() then l.quota = math.huge end
  end

  -- lookAll looks at the logs of a request, and returns for how many takes all of them have room; in the mode m, for
  -- how many units: one permit is enough for any number. It also returns the first log without room.
  local function lookAll(base)
    local least, full = math.huge, nil
    for j = 1, logs do
      local l = limits[j]
      if l.counter then
        l.units, l.moved, l.period, l.part = l.counter.look(KEYS[base + j])
      else
        l.log = log.look(KEYS[base + j], l.window)
        l.units = l.log.units
      end
      local room = (l.quota - l.units) / l.cost
      if room < 1 then full = full or l.log end
      if room < least and not (mode == 'm' and l.kind == 'p' and room >= 1) then least = room end
    end
    return least, full
  end

  -- trim removes the oldest whole entries of a log while what is left is at least keep units.
  local function trim(s, keep)
    local over, first, n = s.units - keep, s.counted and 1 or 0, 50 -- over: how many units may go
    if over <= 0 then return end
    while n == 50 do
      local page = call('ZRANGE', s.key, first, first + s.expired + 49)
      n = s.expired
      while page[n + 1] and log.costOf(page[n + 1]) <= over do n, over = n + 1, over - log.costOf(page[n + 1]) end
      if n > 0 then call('ZREMRANGEBYRANK', s.key, first, first + n - 1) end
      n, s.expired = n - s.expired, 0
    end
    if s.counted then call('ZADD', s.key, -keep - over, '') end
    s.units, s.oldest = keep + over, call('ZRANGE', s.key, first, first, 'WITHSCORES')[2]
  end

  -- decide decides about a request. It returns an error or nil.
  local function decide(base, asked)
    local ids, most, begin = asked, 1, r
    if #asked % 8 ~= 0 then
      ids, priced = asked:sub(1, -4 * logs - 2), true
      for j = 1, logs do
        local price = struct.unpack('>I4', asked, #ids + 4 * j - 2)
        most, limits[j].cost = math.max(most, price), mode == 'm' and 1 or price
      end
    elseif priced then
      priced = false
      for j = 1, logs do limits[j].cost = 1 end
    end
    local takes, room, full = #ids / 8, lookAll(base)
    while full and records and mode ~= 'r' and log.rewound(full) do room, full = lookAll(base) end
    local refused = false -- whether a denial was counted before: it stays one
    for j = 1, mode == 'd' and logs or 0 do
      local denial = limits[j].kind == 'l' and log.memberOf(ids .. '\0', limits[j].cost)
      refused = denial and call('ZSCORE', KEYS[base + j], denial) or refused
    end

    -- The first own takes were recorded before. Those behind them, up to admitted, are recorded now.
    local admitted, own, granted = math.max(math.min(math.floor(room), takes), 0), 0, nil
    if not records or refused then
      admitted = 0
    elseif mode == 'r' then
      admitted = 1
    elseif mode == 'm' then
      granted, priced = math.min(most, math.max(math.floor(room / share), admitted)), true
      for j = 1, logs do if admitted > 0 and limits[j].kind ~= 'p' then limits[j].cost = granted end end
    elseif longest and (admitted < takes or counters) then
      own = log.countOwn(limits[longest].log, ids, limits[longest].cost)
      admitted = math.min(admitted + own, takes)
    end
    if own > 0 or admitted < takes then ids = ids:sub(8 * own + 1, 8 * admitted) end
    local told = isShort and takes == 1 and room >= 1 -- whether the reply is short
    if not told then reply[r + 1], r = granted or admitted, r + 1 end
    for j = 1, logs do
      local l, s = limits[j], limits[j].log
      local quota, price, used, wait = l.quota, l.cost, l.units, 0
      if l.counter then
        local added, till = (admitted - own) * price, l.counter.till
        local after = math.max(used, math.min(used + added, l.counter.most))
        if added > 0 or l.moved and records then l.counter.put(KEYS[base + j], added) end
        if admitted < takes and after + price > quota and price <= quota then
          wait = math.max(till(quota - price), 1)
        end
        reply[r + 1], reply[r + 2], reply[r + 3] = used, after > 0 and till(after - 1) or 0, wait
        reply[r + 4], reply[r + 5], r = l.period, l.part or 0, r + 5
      else
        local n = mode == 'r' and l.kind == 'p' and 0 or admitted -- a permit is not recorded without room
        local refuses = mode == 'd' and l.kind == 'l' and admitted == 0 and not refused
        refuses = refuses and price <= quota and used + price > quota
        local new = refuses and asked:sub(1, 8) .. '\0' or n > 0 and ids or ''
        if new ~= '' or records and log.isLate(s) then
          local failed = log.record(s, new, price, l.ttl)
          if failed then return failed end
        end
        if mode == 'c' and not l.trims then used = math.max(s.units - n * price, 0) end
        if refuses or l.trims and n > 0 then trim(s, l.keep) end
        if n < takes and price <= quota and s.units + price > quota then
          wait = log.wait(s, s.units + price - quota)
          if not wait then
            r = begin
            return decide(base, asked)
          end
        end
        if told then
          reply[r + 1], r = -(used * (l.window + 1) + log.reset(s, s.oldest) + 1), r + 1
        else
          reply[r + 1], reply[r + 2], reply[r + 3], r = used, log.reset(s, s.oldest), wait, r + 3
        end
      end
    end
  end

  return decide
end

-- alone is the counter of requests that ask only one, in the mode c.
local alone = logs == 1 and mode == 'c' and newCounters()[limits[1].kind]
alone = alone and alone(limits[1].quota, limits[1].window, limits[1].ttl)

-- count is brief with that counter. It does not decide a denial.
local function count(base)
  local used, _, period, part = alone.look(KEYS[base + 1])
  if used >= limits[1].quota then return false end
  alone.put(KEYS[base + 1], 1)
  reply[r + 1], reply[r + 2], reply[r + 3], reply[r + 4] = 1, used, alone.till(used), 0
  reply[r + 5], reply[r + 6], r = period, part or 0, r + 6
  return true
end

local decide, quick = nil, isShort and brief or alone and count
for q = 0, requests - 1 do
  local asked, done, failed = ARGV[q + 1], false, nil
  if quick and #asked == 8 then done, failed = quick(q * logs, asked) end
  if not done then
    decide = decide or newDecide()
    failed = decide(q * logs, asked)
  end
  if failed then return failed end
end
return reply
