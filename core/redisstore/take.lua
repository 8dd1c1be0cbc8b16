-- Requests against logs, in one step: all of one policy, in their order.
--
-- KEYS     the logs: sorted sets with a member for each recorded unit, scored with the server's
--          clock in whole microseconds. Members are the take's id (8 bytes), with two bytes
--          more for each further unit, or with a zero byte where the take was denied. A set in
--          which windows vary begins with a mark of score 0: the longest window, as text. Scores of
--          a set whose mark is "keep:" are 4e15 more, so that a take which knows one window only
--          finds nothing there that has left it. To change more scores than "many" would take long, so
--          a longer set gets the mark "near:" instead, and keeps its scores. The invariant: a set with
--          that mark has more than "many" members, and of such sets no take removes anything unless
--          it has looked for a mark. Whatever makes the set shorter changes the scores.
-- ARGV     for each key its takes: their ids, one after the other, and where each costs more than
--          one unit, a space and the cost. Then for all of them, in the plain case: the longest
--          window's ttl (ms), and quota and window (us) of each limit; or else: mode, keep (us), its
--          ttl (ms), how many of the limits decide while the rest are shadows, how many units are kept
--          where something is trimmed away, and quota and window of each limit.
--          Mode is "c" charge, "p" peek, "r" record, "d" charge denied as well; "v" stands before
--          it where windows vary.
-- Reply    for each key: how many of its takes were admitted, the first ones of them; wait; with
--          shadows their wait; used and reset of each limit. Times are in us.
--          wait: how long the others are denied, -1: no wait helps. used: before these takes.
--          In the plain case a number for each limit may say it all: used * (window + 1) + reset + 1,
--          negative when the limit denies until reset; else a zero stands before the others.
--
-- What counts is the number of calls, 0.4 to 1.4 us each, then that of arguments, of numbers in the
-- reply and of functions made, 0.1 to 0.3 us. The plain case, one unit to be charged, has few of them.
local call = redis.call

-- The stamp is text made of text: "..", tostring and %.14g would lose its last digits.
local time = call('TIME')
local micros = time[2]
if #micros < 6 then micros = ('00000' .. micros):sub(-6) end
local stamp = time[1] .. micros
local now = stamp + 0

local n = #KEYS
local ttl, reply, r = ARGV[n + 1], {}, 0
local plain = tonumber(ttl)
local limits = plain and (#ARGV - n - 1) / 2
local quota, window = plain and ARGV[n + 2] + 0, plain and ARGV[n + 3] + 0 -- of the first limit
local quotas, windows, keep, cuts, cut, decide -- made where they are needed
local many = 2000 -- so many scores change in about 2 ms
local leaving = false -- whether entries of the last log have left: then they mostly have in the next as well

for k = 1, n do
  local key, id, told = KEYS[k], ARGV[k], false
  if plain and #id == 8 then
    local size = call('ZCARD', key)
    if leaving and limits == 1 and size <= many then
      local left = call('ZREMRANGEBYSCORE', key, '1', cut)
      leaving, size = left > 0, size - left
    end
    if size == 0 then
      call('ZADD', key, stamp, id)
      local armed = redis.pcall('PEXPIRE', key, ttl)
      if armed ~= 1 then
        call('UNLINK', key) -- rather no entry than one that never leaves
        return armed
      end
      told = true
      for i = 1, limits do reply[r + i] = ARGV[n + 1 + 2 * i] + 1 end
    elseif limits == 1 then
      local oldest = call('ZRANGE', key, '0', '0', 'WITHSCORES')[2]
      local left = oldest - now + window
      if left > window or size > quota or oldest == '0' then
        -- an entry from the future, a take settled above the quota, a mark
      elseif left > 0 and size == quota then
        told = not call('ZSCORE', key, id)
        reply[r + 1] = -size * (window + 1) - left - 1
      elseif call('ZADD', key, 'NX', stamp, id) == 1 then
        -- With more than a unit a second it is cheaper to look than to renew each time.
        if size * 1000000 <= window or call('PTTL', key) < plain - 900 then call('PEXPIRE', key, ttl) end
        if left <= 0 then
          cut, leaving = cut or string.format('%.0f', now - window), true -- a number costs 0.3 us each time it is an argument
          size, left = size - call('ZREMRANGEBYSCORE', key, '-inf', cut), window
          if size > 0 then left = math.min(call('ZRANGE', key, '0', '0', 'WITHSCORES')[2] - now + window, window) end
        end
        told = true
        reply[r + 1] = size * (window + 1) + left + 1
      end
    else
      if not quotas then
        quotas, windows, cuts, keep = {}, {}, {}, 0
        for i = 1, limits do
          quotas[i], windows[i] = ARGV[n + 2 * i] + 0, ARGV[n + 1 + 2 * i] + 0
          if windows[i] > keep then keep = windows[i] end
        end
        cut = string.format('%.0f', now - keep)
      end
      local oldest, expired = call('ZRANGE', key, '0', '0', 'WITHSCORES')[2] + 0, 0
      local odd, denied = oldest == 0, false
      if oldest <= now - keep then
        expired = call('ZCOUNT', key, '-inf', cut)
        oldest = expired < size and call('ZRANGE', key, expired, expired, 'WITHSCORES')[2] + 0
      end
      for i = 1, limits do
        local held, since = 0, oldest
        if oldest and oldest > now - windows[i] then
          held = size - expired
        elseif oldest then
          cuts[i] = cuts[i] or string.format('(%.0f', now - windows[i])
          held = call('ZCOUNT', key, cuts[i], '+inf')
          since = held > 0 and call('ZRANGE', key, -held, -held, 'WITHSCORES')[2] + 0
        end
        odd = odd or held > quotas[i] or since and since > now
        denied = denied or held == quotas[i]
        reply[r + i] = held * (windows[i] + 1) + (since and since - now or 0) + windows[i] + 1
        if held == quotas[i] then reply[r + i] = -reply[r + i] end
      end
      if odd then
        -- as above
      elseif denied then
        told = not call('ZSCORE', key, id) and call('ZCOUNT', key, '(' .. stamp, '+inf') == 0 -- from the future
        for i = 1, limits do
          if reply[r + i] == windows[i] + 1 then reply[r + i] = 1 end -- it holds nothing, not even this
        end
      elseif call('ZADD', key, 'NX', stamp, id) == 1 then
        if size * 1000000 <= keep or call('PTTL', key) < plain - 900 then call('PEXPIRE', key, ttl) end
        if expired > 0 then call('ZREMRANGEBYSCORE', key, '-inf', cut) end
        told = true
      end
    end
  end
  if told then
    r = r + limits
  else
    if plain then
      r = r + 1
      reply[r] = 0
    end
    local takes = math.floor(#id / 8)
    local cost = #id % 8 > 0 and id:sub(takes * 8 + 2) + 0 or 1
    if not decide then -- here, because a function costs something each time it is made
      local mode, varies, keepText, ttlText, deciding, first = 'c', false, '0', ttl, limits, n + 2
      if not plain then
        mode, keepText, ttlText, deciding, first = ttl, ARGV[n + 2], ARGV[n + 3], ARGV[n + 4] + 0, n + 6
        if #mode > 1 then varies, mode = true, mode:sub(2) end
      end
      local here, hereText, far = now, stamp, 4000000000000000
      local now, stamp = here, hereText -- the log's: see KEYS
      local limits, quotas, windows, largest = 0, {}, {}, plain and 0 or ARGV[n + 5] + 0
      for i = first, #ARGV, 2 do
        limits = limits + 1
        quotas[limits], windows[limits] = ARGV[i] + 0, ARGV[i + 1] + 0
        if limits <= deciding and quotas[limits] > largest then largest = quotas[limits] end
        if plain and windows[limits] > keepText + 0 then keepText = ARGV[i + 1] end
      end

      local function scoreAt(key, rank)
        return (call('ZRANGE', key, rank, rank, 'WITHSCORES')[2] or 0) + 0
      end

      -- Entries from the future are left by a clock that has stepped back, as in a
      -- failover. Brought to the present they leave in one window at most.
      local function repair(key, ttl)
        local late = call('ZRANGEBYSCORE', key, '(' .. stamp, '+inf')
        for i = 1, #late do call('ZADD', key, 'XX', stamp, late[i]) end
        if #late > 0 then call('PEXPIRE', key, ttl) end
      end

      -- Gives the entries of a log the scores that go with the mark "keep:". None has a mark yet.
      local function shift(key)
        local all, batch, n = call('ZRANGE', key, '0', '-1', 'WITHSCORES'), {}, 0
        for i = 1, #all, 2 do
          batch[n + 1], batch[n + 2], n = string.format('%.0f', all[i + 1] + far), all[i], n + 2
          if n == 2000 or i == #all - 1 then -- unpack has room for some thousands
            call('ZADD', key, 'XX', unpack(batch, 1, n))
            n = 0
          end
        end
      end

      -- Gives a log of so many units its first mark, or a mark of a longer window.
      local function mark(key, longest, size)
        if longest then
          call('ZREM', key, longest)
        elseif now == here and size < many then
          shift(key)
        end
        local kind = longest and longest:sub(1, 5) or now == here and size >= many and 'near:' or 'keep:'
        call('ZADD', key, '0', kind .. keepText)
        return kind .. keepText
      end

      -- Adds the units of some takes, and returns how many of them were there already: a client that
      -- lost the reply has sent the command again.
      local function add(key, ids, takes, cost, first)
        if takes == 1 and cost == 1 then return 1 - call('ZADD', key, 'NX', stamp, ids:sub(1, 8) .. first) end
        local batch, n, there = {}, 0, takes * cost
        for t = 1, takes do
          local id = ids:sub(8 * t - 7, 8 * t)
          for unit = 0, cost - 1 do
            batch[n + 1], batch[n + 2] = stamp, id .. (unit == 0 and first or string.char(math.floor(unit / 256), unit % 256))
            n = n + 2
            if n == 2000 or t == takes and unit == cost - 1 then -- unpack has room for some thousands
              there = there - call('ZADD', key, 'NX', unpack(batch, 1, n))
              n = 0
            end
          end
        end
        return there
      end

      -- How many units of these takes are there, whether they were denied, and since when.
      local function executed(key, ids, takes, cost)
        local at = call('ZSCORE', key, ids:sub(1, 8))
        if at then
          local n = 1
          while n < takes and call('ZSCORE', key, ids:sub(8 * n + 1, 8 * n + 8)) do n = n + 1 end
          return n * cost, false, at + 0
        end
        at = mode == 'd' and call('ZSCORE', key, ids .. '\0')
        if at then return cost, true, at + 0 end
        return 0, false, nil
      end

      -- own, denied and at are those of executed, when these takes are known to have been executed before.
      local function take(key, ids, cost, own, denied, at)
        local keep, ttl, takes = keepText + 0, ttlText, #ids / 8
        local size = call('ZCARD', key)
        local oldest, first, longest = size > 0 and scoreAt(key, '0'), 0, nil
        now, stamp = here, hereText
        if oldest == 0 then longest, first, size = call('ZRANGE', key, '0', '0')[1], 1, size - 1 end
        local text, near = longest, longest and longest:sub(1, 5) == 'near:'
        if longest and not near or varies and size == 0 then
          now = here + far
          stamp = string.format('%.0f', now)
        end
        if longest then
          oldest = size > 0 and scoreAt(key, '1')
          local kept = longest:sub(6) + 0
          if kept >= keep then keep, ttl = kept, math.floor(kept / 1000) + 1000 end
        end
        local expired = oldest and oldest <= now - keep

        -- How many units each window holds, and how many takes fit into all of them.
        local used, admitted, never, uncounted = {}, takes, false, false
        for i = 1, limits do
          local cut = now - windows[i]
          if not oldest then
            used[i] = 0
          elseif oldest > cut then
            used[i] = size
          elseif limits == 1 and expired and mode == 'c' and own == 0 and windows[1] == keep
            and size - 1 + takes * cost <= quotas[1] and size <= 2 * many then
            used[i], uncounted = 0, true -- there is room: they are counted when what has left is removed
          else
            used[i] = call('ZCOUNT', key, cut + 1, '+inf')
          end
          if at and at > cut and not denied then used[i] = math.max(used[i] - own, 0) end
          if i <= deciding then
            never = never or cost > quotas[i]
            admitted = math.min(admitted, math.floor((quotas[i] - used[i]) / cost))
          end
        end
        admitted = math.max(admitted, 0)
        if mode == 'r' then admitted = takes end
        if own > 0 then
          admitted = denied and 0 or math.max(admitted, own / cost)
        elseif admitted < takes and mode ~= 'p' then
          own, denied, at = executed(key, ids, takes, cost)
          if at then return take(key, ids, cost, own, denied, at) end
        end

        -- ZADD comes first: where memory is short it is refused before anything has changed.
        local new = 0
        if mode ~= 'p' and not denied and admitted * cost > own then
          if add(key, ids, admitted, cost, '') > own then
            call('PEXPIRE', key, ttl)
            return take(key, ids, cost, executed(key, ids, takes, cost))
          end
          new = admitted * cost - own
        elseif mode == 'd' and own == 0 and admitted == 0 and not never then
          add(key, ids, 1, cost, '\0')
          new = cost
        end
        -- What a denied take has pushed out when it was recorded is not known any more: it counts itself.
        local mine, future = denied and 0 or own + new, false

        -- A limit denies while the unit that must leave for it is inside its window: with quota 5 and
        -- cost 1 that is the fifth newest.
        local function leaving(i, rank)
          local instant = scoreAt(key, -rank)
          if instant > now then future, instant = true, now end
          return instant + windows[i] - now
        end
        local shadow = 0
        for i = deciding + 1, limits do
          if cost > quotas[i] then
            shadow = -1
          elseif shadow >= 0 and used[i] + cost > quotas[i] then
            shadow = math.max(shadow, leaving(i, quotas[i] - cost + 1 + mine))
          end
        end

        if new > 0 then
          local armed = redis.pcall('PEXPIRE', key, ttl)
          if type(armed) == 'table' and armed.err then
            if size == 0 then call('UNLINK', key) end -- rather no entry than one that never leaves
            return armed
          end
          size = size + new
          if oldest and oldest > now then future = true end
          if longest and longest:sub(6) + 0 < keep or varies and not longest then
            text, first = mark(key, longest, size), 1
            near = text:sub(1, 5) == 'near:'
            if not longest and now == here and not near then
              now, oldest, at = here + far, nil, at and at + far
              stamp = string.format('%.0f', now)
            end
          end
          if expired then
            if size > 2 * many and scoreAt(key, first + 2 * many) <= now - keep then -- the next takes remove the rest
              size = size - call('ZREMRANGEBYRANK', key, first, first + 2 * many - 1)
            else
              size = size - call('ZREMRANGEBYSCORE', key, '1', now - keep)
            end
            if uncounted then used[1] = size - new end
            oldest = nil
          end
          local bound = mode == 'r' and math.max(largest, 100000) or largest
          if (mode == 'r' or admitted == 0) and size > bound then
            call('ZREMRANGEBYRANK', key, first, first + size - bound - 1)
            size, oldest = bound, nil
          end
        end

        local wait = 0
        if never and admitted == 0 then
          wait = -1
        elseif admitted < takes then
          -- Where several limits look at different units, the one that decides may be none from the future.
          if limits > 1 and size > 0 and scoreAt(key, '-1') > now then future = true end
          for i = 1, deciding do
            if used[i] + mine + cost > quotas[i] then wait = math.max(wait, leaving(i, quotas[i] - cost + 1)) end
          end
          wait = math.max(wait, 1) -- executed again so late that there is room by now
        end

        reply[r + 1], reply[r + 2], r = admitted, wait, r + 2
        if limits > deciding then
          r = r + 1
          reply[r] = shadow
        end
        for i = 1, limits do
          local cut, held, reset = now - windows[i], used[i], 0
          if new > 0 or at and at > cut then held = math.min(held + mine, size) end
          if held == new and new > 0 then
            reset = windows[i]
          elseif held > 0 then
            if not oldest then oldest = scoreAt(key, first) end
            reset = math.max(0, math.min((oldest > cut and oldest or scoreAt(key, -held)) - cut, windows[i]))
          end
          reply[r + 1], reply[r + 2], r = used[i], reset, r + 2
        end
        if future and mode ~= 'p' then repair(key, ttl) end
        if near and new > 0 and size < many then
          call('ZREM', key, text)
          shift(key)
          call('ZADD', key, '0', 'keep:' .. text:sub(6))
        end
      end

      decide = take
    end
    local failed = decide(key, id:sub(1, takes * 8), cost, 0, false, nil)
    if failed then return failed end
  end
end
return reply
