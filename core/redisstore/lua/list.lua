-- Decides requests over the same limits, each of which asks several logs, or in any mode: all of its logs record it, or
-- none. KEYS: the logs, one request after the other. ARGV: for each request the ids of its takes, 8 bytes each; then,
-- unless each costs 1, a byte 0 and in 4 bytes what a take costs in the first log, in the second one, and so on. Only
-- in the mode c has a request several takes. Then, for each limit, a letter, its quota, its window (us) and the TTL of
-- its log (ms). The letter is l for a sliding log, p for one of permits, u for one that has always room, or that of a
-- counter, of which window and TTL are what counters.lua expects. Then the mode (c: charge, p: peek, r: record, d:
-- charge, and count denials, m: at most), the share of the mode m, and the number of limits.
-- Reply, for each request: how many takes are admitted, in the mode m how many units; then, for each limit, used,
-- reset, and how long the next take must wait (0 if it need not, or never will fit); of a counter the period as well,
-- and its nanoseconds if its interval has some. Or, for one take in the mode c: a negative number for each log,
-- -(used * (window + 1) + reset + 1), where one of them is used up if it is denied; of a counter alone, if it is
-- admitted, -(used + 1), reset, and its period.
-- include clock
-- include log
-- include counters
local logs = ARGV[#ARGV] + 0
local requests, mode, share = #KEYS / logs, ARGV[#ARGV - 2], ARGV[#ARGV - 1] + 0
local records = mode ~= 'p'
local reply, r = {}, 0

-- Of each limit; and of the logs of a request, units in the window, when the oldest leaves, and expired entries. Most
-- requests have two logs, for which these tables need not grow.
local quotas, windows, ttls, units, oldest, expired = {0, 0}, {0, 0}, {0, 0}, {0, 0}, {0, 0}, {0, 0}
local isShort, longest = mode == 'c', nil -- whether a reply may be short; the log with the longest window
local future -- what was recorded before the clock was set back
for j = 1, logs do
  local at = requests + 4 * j - 3
  local kind, quota, window = ARGV[at], ARGV[at + 1] + 0, ARGV[at + 2] + 0
  quotas[j], windows[j], ttls[j] = quota, window, ARGV[at + 3]
  isShort = isShort and (kind == 'l' or kind == 'p') and (quota + 1) * (window + 1) < 9007199254740992
  if (isShort or kind:find('[lpu]')) and window > (windows[longest] or 0) then longest = j end
end

-- brief decides a take of one unit in the mode c whose logs have no entries of more units or of the future. It reports
-- whether it did, and returns an error or nil.
local function brief(base, id)
  local full -- a log without room
  for j = 1, logs do
    local key, window, gone = KEYS[base + j], windows[j], 0
    local size, left = call('ZCARD', key), window
    if size > 0 then
      local first = call('ZRANGE', key, '0', '0', 'WITHSCORES')
      left = first[2] - now + window
      if left > window or first[1] == '' or size > atOnce and left <= 0 then return false end
      if left <= 0 then
        gone = call('ZCOUNT', key, '1', text(now - window))
        size = size - gone
        left = size > 0 and call('ZRANGE', key, gone, gone, 'WITHSCORES')[2] - now + window or window
      end
      if size > quotas[j] or left > window then return false end
      if size == quotas[j] then full = full or key end
    end
    units[j], oldest[j], expired[j] = size, left, gone
  end
  if full then -- unless it was recorded before, or the clock was set back, see log.lua
    future = future or '(' .. text(now + 1000000)
    if call('ZSCORE', KEYS[base + longest], id) or call('ZCOUNT', full, future, '+inf') > 0 then return false end
  end
  for j = 1, logs do
    local key, size, left = KEYS[base + j], units[j], full and units[j] == 0 and 0 or oldest[j]
    if not full then
      if expired[j] > 0 then call('ZREMRANGEBYRANK', key, '0', expired[j] - 1) end
      if call('ZADD', key, 'NX', stamp, id) == 0 then size = size - 1 end
      local failed = arm(key, ttls[j])
      if failed then return true, failed end
    end
    reply[r + j] = -(size * (windows[j] + 1) + left + 1)
  end
  r = r + logs
  return true
end

-- newDecide returns a function that decides about any request.
local function newDecide()
  local log, counters, call = newLog(), nil, call
  local kinds, keeps, trims, counter = {}, {}, {}, {}
  -- What a take costs, and what look returns. Of a counter expired is whether the clock was set back, and counted and
  -- oldest are the period.
  local cost, counted, gone = {}, {}, {}
  local priced = false -- whether a cost may not be 1

  for j = 1, logs do
    local kind, quota = ARGV[requests + 4 * j - 3], quotas[j]
    kinds[j], cost[j] = kind, 1
    if kind:find('[lpu]') then
      keeps[j] = (mode ~= 'd' or kind == 'u') and math.max(quota, 100000) or quota
      trims[j] = records and kind == 'u' or mode == 'r' and kind == 'l'
      if kind == 'u' then quotas[j] = math.huge end
    else
      counters = counters or newCounters()
      counter[j] = counters[kind](quota, windows[j], ttls[j])
    end
  end

  -- lookAll looks at the logs of a request, and returns for how many takes all of them have room; in the mode m, for
  -- how many units: one permit is enough for any number. It also returns the first log without room.
  local function lookAll(base)
    local least, full = math.huge, nil
    for j = 1, logs do
      if counter[j] then
        units[j], expired[j], counted[j], oldest[j] = counter[j].look(KEYS[base + j])
      else
        units[j], oldest[j], counted[j], expired[j], gone[j] = log.look(KEYS[base + j], windows[j])
      end
      local room = (quotas[j] - units[j]) / cost[j]
      if room < 1 and not counter[j] then full = full or j end
      if room < least and not (mode == 'm' and kinds[j] == 'p' and room >= 1) then least = room end
    end
    return least, full
  end

  -- trim removes the oldest whole entries of a log while what is left is at least keep units. It expects what look
  -- returns, and returns this as it is then.
  local function trim(key, keep, units, oldest, counted, expired)
    local over, first, n = units - keep, counted and 1 or 0, 50 -- over: how many units may go
    if over <= 0 then return units, oldest, counted, expired end
    while n == 50 do
      local page = call('ZRANGE', key, first, first + expired + 49)
      n = expired
      while page[n + 1] and log.costOf(page[n + 1]) <= over do n, over = n + 1, over - log.costOf(page[n + 1]) end
      if n > 0 then call('ZREMRANGEBYRANK', key, first, first + n - 1) end
      n, expired = n - expired, 0
    end
    if counted then call('ZADD', key, -keep - over, '') end
    return keep + over, call('ZRANGE', key, first, first, 'WITHSCORES')[2], counted, 0
  end

  -- decide decides about a request. It returns an error or nil.
  local function decide(base, asked)
    local ids, most, begin = asked, 1, r
    if #asked % 8 ~= 0 then
      ids, priced = asked:sub(1, -4 * logs - 2), true
      for j = 1, logs do
        local price = struct.unpack('>I4', asked, #ids + 4 * j - 2)
        most, cost[j] = math.max(most, price), mode == 'm' and 1 or price
      end
    elseif priced then
      priced = false
      for j = 1, logs do cost[j] = 1 end
    end
    local takes, room, full = #ids / 8, lookAll(base)
    while full and records and mode ~= 'r' and log.rewound(KEYS[base + full], counted[full]) do
      room, full = lookAll(base)
    end
    local refused = false -- whether a denial was counted before: it stays one
    for j = 1, mode == 'd' and logs or 0 do
      local denial = kinds[j] == 'l' and log.memberOf(ids .. '\0', cost[j])
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
      for j = 1, logs do if admitted > 0 and kinds[j] ~= 'p' then cost[j] = granted end end
    elseif longest and (admitted < takes or counters) then
      own = log.countOwn(KEYS[base + longest], ids, cost[longest], windows[longest])
      admitted = math.min(admitted + own, takes)
    end
    if own > 0 or admitted < takes then ids = ids:sub(8 * own + 1, 8 * admitted) end
    local told = isShort and takes == 1 and room >= 1 -- whether the reply is short
    if not told then reply[r + 1], r = granted or admitted, r + 1 end
    for j = 1, logs do
      local key, kind, quota, price, used, left = KEYS[base + j], kinds[j], quotas[j], cost[j], units[j], 0
      if counter[j] then
        local added, till, after = (admitted - own) * price, counter[j].till, used + (admitted - own) * price
        if added > 0 or expired[j] and records then counter[j].put(key, added) end
        if admitted < takes and after + price > quota and price <= quota then
          left = math.max(till(quota - price), 1)
        end
        reply[r + 1], reply[r + 2], reply[r + 3] = used, after > 0 and till(after - 1) or 0, left
        reply[r + 4], reply[r + 5] = counted[j], oldest[j]
        r = r + (oldest[j] and 5 or 4)
      else
        local window, after, first, sums, past = windows[j], used, oldest[j], counted[j], expired[j]
        local n = mode == 'r' and kind == 'p' and 0 or admitted -- a permit is not recorded without room
        local refuses = mode == 'd' and kind == 'l' and admitted == 0 and not refused
        refuses = refuses and price <= quota and used + price > quota
        local new = refuses and asked:sub(1, 8) .. '\0' or n > 0 and ids or ''
        if new ~= '' or records and log.isLate(used, sums, past) then
          after, first, sums, past = log.record(key, new, price, ttls[j], used, first, sums, past, gone[j])
          if not after then return first end
        end
        if mode == 'c' and not trims[j] then used = math.max(after - n * price, 0) end
        if refuses or trims[j] and n > 0 then
          after, first, sums, past = trim(key, keeps[j], after, first, sums, past)
        end
        if n < takes and price <= quota and after + price > quota then
          left = log.wait(key, window, after + price - quota, first, sums, past)
          if not left then
            r = begin
            return decide(base, asked)
          end
        end
        if told then
          reply[r + 1], r = -(used * (window + 1) + log.reset(first, window) + 1), r + 1
        else
          reply[r + 1], reply[r + 2], reply[r + 3], r = used, log.reset(first, window), left, r + 3
        end
      end
    end
  end

  return decide
end

-- alone is the counter of requests that ask only one, in the mode c.
local alone = logs == 1 and mode == 'c' and newCounters()[ARGV[requests + 1]]
alone = alone and alone(quotas[1], windows[1], ttls[1])

-- count is brief with that counter. It does not decide a denial.
local function count(base)
  local used, _, period, part = alone.look(KEYS[base + 1])
  if used >= quotas[1] then return false end
  alone.put(KEYS[base + 1], 1)
  reply[r + 1], reply[r + 2], reply[r + 3], reply[r + 4] = -used - 1, alone.till(used), period, part
  r = r + (part and 4 or 3)
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
