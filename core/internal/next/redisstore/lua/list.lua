-- Decides requests over the same limits, each of which asks several logs, or in any mode: all of its logs record it, or
-- none. KEYS: the logs, one request after the other. ARGV: for each request the ids of its takes, 8 bytes each; then,
-- unless each costs 1, a byte 0 and in 4 bytes what a take costs in the first log, in the second one, and so on. Only
-- in the mode c has a request several takes. Then, for each limit, a letter, its quota, its window (us) and the TTL of
-- its log (ms). The letter is l for a sliding log, p for one of permits, u for one that has always room, or that of a
-- counter, of which window and TTL are what counters.lua expects. Then the mode (c: charge, p: peek, r: record, d:
-- charge, and count denials, m: at most), the share of the mode m, and the number of limits.
-- Reply, for each request: how many takes are admitted, in the mode m how many units; then, for each limit, used,
-- reset, and how long the next take must wait (0 if it need not, or never will fit); of a counter the period, and its
-- nanoseconds, as well.
-- include log
-- include counters
local logs = ARGV[#ARGV] + 0
local requests, mode, share = #KEYS / logs, ARGV[#ARGV - 2], ARGV[#ARGV - 1] + 0
local records = mode ~= 'p'
local reply, r = {}, 0
local kinds, quotas, windows, ttls, keeps, trims, counter = {}, {}, {}, {}, {}, {}, {}
-- What is known of the logs of a request: what a take costs, and what look returns. Of a counter expired is whether the
-- clock was set back, and counted and oldest are the period.
local cost, units, oldest, counted, expired = {}, {}, {}, {}, {}

local counts = false -- whether a limit has a counter
for j = 1, logs do
  local at = requests + 4 * j - 3
  local kind, quota = ARGV[at], ARGV[at + 1] + 0
  kinds[j], quotas[j], windows[j], ttls[j] = kind, quota, ARGV[at + 2] + 0, ARGV[at + 3]
  keeps[j], trims[j] = quota, mode == 'r' and kind ~= 'p'
  if mode ~= 'd' or kind == 'u' then keeps[j] = math.max(quota, 100000) end
  if kind == 'u' then
    quotas[j], trims[j] = math.huge, records
  elseif kind ~= 'l' and kind ~= 'p' then
    counts = true
  end
end
if counts then
  local counters = newCounters()
  for j = 1, logs do
    local new = counters[kinds[j]]
    counter[j] = new and new(quotas[j], windows[j], ttls[j])
  end
end

-- lookAll looks at the logs of a request, and returns for how many takes all of them have room; in the mode m, for how
-- many units: one permit is enough for any number.
local function lookAll(base)
  local least = math.huge
  for j = 1, logs do
    if counter[j] then
      units[j], expired[j], counted[j], oldest[j] = counter[j].look(call('GET', KEYS[base + j]))
    else
      units[j], oldest[j], counted[j], expired[j] = look(KEYS[base + j], windows[j])
    end
    local room = (quotas[j] - units[j]) / cost[j]
    if room < least and not (mode == 'm' and kinds[j] == 'p' and room >= 1) then least = room end
  end
  return least
end

-- rewoundAny is rewound of the logs without room.
local function rewoundAny(base)
  local any = false
  for j = 1, logs do
    if not counter[j] and units[j] + cost[j] > quotas[j] and rewound(KEYS[base + j], counted[j]) then any = true end
  end
  return any
end

-- countOwnAll is countOwn of the log that has the most. Those that have a take have it because all had room.
local function countOwnAll(base, ids)
  local most = 0
  for j = 1, logs do
    if not counter[j] then most = math.max(most, countOwn(KEYS[base + j], ids, cost[j], windows[j])) end
  end
  return most
end

-- isDenied reports whether a log has counted a denial of the take.
local function isDenied(base, id)
  for j = 1, logs do
    if kinds[j] == 'l' and call('ZSCORE', KEYS[base + j], memberOf(id .. '\0', cost[j])) then return true end
  end
  return false
end

-- trim removes the oldest whole entries of a log while what is left is at least keep units. It expects what look
-- returns, and returns this as it is then.
local function trim(key, keep, units, oldest, counted, expired)
  local over = units - keep -- how many units may go
  if over <= 0 then return units, oldest, counted, expired end
  local first, n, size = counted and 1 or 0, expired + over, 8
  if counted then
    n = 0
    repeat
      local page, i = call('ZRANGE', key, n + 1, n + size), 1
      while page[i] and costOf(page[i]) <= over do over, i = over - costOf(page[i]), i + 1 end
      n = n + i - 1
      local all = i > size
      size = math.min(4 * size, atOnce)
    until not all
    if n == 0 then return units, oldest, counted, expired end
    call('ZADD', key, -keep - over, '')
    keep = keep + over
  end
  call('ZREMRANGEBYRANK', key, first, first + n - 1)
  return keep, call('ZRANGE', key, first, first, 'WITHSCORES')[2], counted, 0
end

-- decide decides about a request and writes its reply behind reply[begin]. It returns an error or nil.
local function decide(base, asked, begin)
  local ids, most = asked, 1
  local priced = #asked % 4 ~= 0
  if priced then ids = asked:sub(1, -4 * logs - 2) end
  for j = 1, logs do
    local price = priced and struct.unpack('>I4', asked, #ids + 4 * j - 2) or 1
    if price > most then most = price end
    cost[j] = mode == 'm' and 1 or price
  end
  local takes, room = #ids / 8, lookAll(base)
  if room < takes and records and mode ~= 'r' and rewoundAny(base) then room = lookAll(base) end

  -- The first own takes were recorded before. Those behind them, up to admitted, are recorded now.
  local admitted, own, granted = math.max(math.min(math.floor(room), takes), 0), 0, nil
  local refused = mode == 'd' and isDenied(base, ids) -- a denial that was counted stays one
  if not records or refused then
    admitted = 0
  elseif mode == 'r' then
    admitted = 1
  elseif mode == 'm' then
    granted = math.min(most, math.max(math.floor(room / share), admitted))
    for j = 1, logs do if admitted > 0 and kinds[j] ~= 'p' then cost[j] = granted end end
  elseif admitted < takes or counts then
    own = countOwnAll(base, ids)
    admitted = math.min(admitted + own, takes)
  end
  if own > 0 or admitted < takes then ids = ids:sub(8 * own + 1, 8 * admitted) end
  local added = admitted - own
  r = begin + 1
  reply[r] = granted or admitted
  for j = 1, logs do
    local key, kind, quota, price, used, left = KEYS[base + j], kinds[j], quotas[j], cost[j], units[j], 0
    if counter[j] then
      if added > 0 or expired[j] and records then
        local value, ttl = counter[j].put(added * price)
        call('SET', key, value, 'PX', ttl)
      end
      local after = used + added * price
      if admitted < takes and after + price > quota and price <= quota then
        left = math.max(counter[j].till(quota - price), 1)
      end
      reply[r + 1], reply[r + 2], reply[r + 3] = used, after > 0 and counter[j].till(after - 1) or 0, left
      reply[r + 4], reply[r + 5], r = counted[j], oldest[j], r + 2
    else
      local window, after, first, sums, past = windows[j], used, oldest[j], counted[j], expired[j]
      local n = mode == 'r' and kind == 'p' and 0 or admitted -- a permit is not recorded without room
      local denied = mode == 'd' and n == 0 and not refused and kind == 'l' and used + price > quota and price <= quota
      local new = denied and asked:sub(1, 8) .. '\0' or n > 0 and ids or ''
      if new ~= '' or records and isLate(used, sums, past) then
        after, first, sums, past = record(key, new, price, ttls[j] + 0, used, first, sums, past)
        if not after then return first end
      end
      if mode == 'c' and not trims[j] then used = math.max(after - n * price, 0) end
      if denied or trims[j] and n > 0 then after, first, sums, past = trim(key, keeps[j], after, first, sums, past) end
      if n < takes and price <= quota and after + price > quota then
        left = wait(key, window, after + price - quota, first, sums, past)
        if not left then return decide(base, asked, begin) end
      end
      reply[r + 1], reply[r + 2], reply[r + 3] = used, reset(first, window), left
    end
    r = r + 3
  end
end

for q = 1, requests do
  local failed = decide((q - 1) * logs, ARGV[q], r)
  if failed then return failed end
end
return reply
