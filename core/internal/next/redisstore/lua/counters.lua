-- newCounters returns the algorithms that keep some numbers of a key instead of a log, by their letters. Each is a
-- function of quota, window (us) and what else the limit has, a text. It returns these functions:
--   look(value)   how many units are used; whether the clock was set back, so that a denial must write the value as
--                 well, or its wait would be as long as that; the period, and its nanoseconds, for settle
--   till(used)    how long it takes until no more than that many are used, which is less than now
--   put(added)    adds units, and returns the new value and its TTL (ms)
--   settle(change, period, nanoseconds, was)
--                 put of the difference in what a take costs, or nothing if its period has ended
-- All but look are about the value that look was given last. A value begins with the instant of the latest take, in 16
-- digits. If that is more than a second from now, the clock was set back, and the value is taken as one of now.
local function newCounters()
  local counters, second, units10 = {}, 1000000, '%010.0f'

  local function ttlOf(left) return string.format('%.0f', math.ceil(left / 1000) + 1000) end

  local function within(units) return math.min(math.max(units, 0), 9999999999) end

  -- read returns the instant of a value, that as of which it counts, and whether the clock was set back.
  local function read(value)
    local last = value and value:sub(1, 16) + 0 or 0
    local moved = last > now + second
    return last, moved and now or math.max(now, last), moved
  end

  -- f, a fixed window. The value has the units of the period in 10 digits. Where the periods are those of a calendar,
  -- it has instant and units of the period before as well, if there were some. Since a calendar may change, these count
  -- if that instant is in the present period, and the value stays for one period more than it counts.
  function counters.f(_, window, instants)
    local calendar = instants ~= '' and {struct.unpack('>I8I8I8I8', instants)}
    local at, begin, ends, units, latest, before

    local function till() return ends - math.min(now, ends - 1) end

    local function put(added)
      units = within(units + added)
      local value = text(at) .. string.format(units10, units)
      if before > 0 then value = value .. text(latest) .. string.format(units10, before) end
      return value, ttlOf(till() + (calendar and window or 0))
    end

    local function look(value)
      local last, from, moved = read(value)
      units, latest, before = value and value:sub(17, 26) + 0 or 0, 0, 0
      if calendar then
        from = math.min(math.max(from, calendar[1]), calendar[4] - 1)
        if value and #value > 26 then latest, before = value:sub(27, 42) + 0, value:sub(43) + 0 end
        local i = 1
        while from >= calendar[i + 1] do i = i + 1 end
        begin, ends = calendar[i], calendar[i + 1]
      else
        begin = from - from % window
        ends = begin + window
      end
      at = from
      if last < begin then latest, before, units = last, calendar and units or 0, 0 end
      if latest >= begin then units, before = units + before, 0 end
      return units, moved, at, 0
    end

    local function settle(change, period)
      if period >= begin and period < ends and now < ends then return put(change) end -- now may be after the calendar
    end

    return {look = look, till = till, put = put, settle = settle}
  end

  -- mulDiv returns a * b / c, and the rest, exactly: a is less than 2^35, b and c are at most 2^45, a or b at most c.
  local function mulDiv(a, b, c)
    if a * b < 9007199254740992 then return (a * b - a * b % c) / c, a * b % c end
    local quotient, rest = 0, 0
    for _, bits in ipairs({268435456, 2097152, 16384, 128, 1}) do -- 7 bits at once, since more would not be exact
      local part = rest * 128 + math.floor(a / bits) % 128 * b
      rest = part % c
      quotient = quotient * 128 + (part - rest) / c
    end
    return quotient, rest
  end

  -- s, a sliding counter. The value has the units of the period in 10 digits, and those of the period before in 10.
  function counters.s(_, window)
    local at, begin, units, before

    local function till(used)
      if used >= units then return begin + window - now - mulDiv(used - units, window, before) end
      return begin + 2 * window - now - mulDiv(used, window, units)
    end

    local function put(added)
      units = within(units + added)
      return text(at) .. string.format(units10 .. units10, units, before), ttlOf(begin + 2 * window - now)
    end

    local function look(value)
      local last, from, moved = read(value)
      at, begin, units, before = from, from - from % window, 0, 0
      if last >= begin then
        units, before = value:sub(17, 26) + 0, value:sub(27) + 0
      elseif last >= begin - window then
        before = value:sub(17, 26) + 0
      end
      local whole, rest = mulDiv(before, begin + window - from, window)
      return units + whole + (rest > 0 and 1 or 0), moved, at, 0
    end

    local function settle(change, period)
      if period >= begin then return put(change) end
      if period < begin - window then return end
      before = within(before + change)
      return put(0)
    end

    return {look = look, till = till, put = put, settle = settle}
  end

  -- t, a token bucket. The value has how long after its instant the bucket is full: microseconds, and in three digits
  -- nanoseconds if the interval of units has any. These are two numbers here, since one would not be exact.
  function counters.t(quota, interval, fraction)
    local ahead, nanos -- from now on
    fraction = fraction + 0

    -- times returns how long some units take to come back.
    local function times(n) return n * interval + math.floor(n * fraction / 1000), n * fraction % 1000 end

    local function isAfter(time, part) return ahead > time or ahead == time and nanos > part end

    local function move(time, part)
      nanos = nanos + part
      ahead, nanos = ahead + time + math.floor(nanos / 1000), nanos % 1000
    end

    local function till(used)
      local time, part = times(used)
      return ahead - time + (nanos > part and 1 or 0)
    end

    local function put(added)
      move(times(added))
      return stamp .. string.format(fraction > 0 and '%.0f%03.0f' or '%.0f', ahead, nanos), ttlOf(ahead)
    end

    local function look(value)
      local last, _, moved = read(value)
      ahead, nanos = 0, 0
      if value then
        ahead = value:sub(17, fraction > 0 and -4 or -1) - (moved and 0 or now - last)
        if fraction > 0 then nanos = value:sub(-3) + 0 end
        if ahead < 0 then ahead, nanos = 0, 0 end
      end
      local used = math.floor((ahead + nanos / 1000) / (interval + fraction / 1000)) -- or nearly so
      while isAfter(times(used)) do used = used + 1 end
      while used > 0 and not isAfter(times(used - 1)) do used = used - 1 end
      return used, moved, now + ahead, nanos
    end

    local function settle(change, period, part, was)
      local time, rest = times(math.abs(change))
      if change < 0 then
        -- At period + own all units of the take have come back: these are not given back. It took the quota at most.
        local own, more = times(math.min(was, quota))
        more = more + part
        own, more = period + own + math.floor(more / 1000) - now, more % 1000
        if own < 0 then return end
        if time > own or time == own and rest > more then time, rest = own, more end
        time, rest = -time, -rest
      end
      move(time, rest)
      if ahead < 0 then ahead, nanos = 0, 0 end
      if isAfter(times(quota)) then ahead, nanos = times(quota) end
      return put(0)
    end

    return {look = look, till = till, put = put, settle = settle}
  end

  return counters
end
