-- newCounters returns the algorithms that keep some numbers of a key instead of a log, by their letters. Each is a
-- function of quota, window (us) and what else the limit has, a text. It returns the number of units that it can hold,
-- most, and these functions:
--   look(key)         how many units are used; whether the clock was set back by more than a second, so that a denial
--                     must write the value, too, as one of now; the period, in two numbers if need be
--   till(used)        how long it takes until no more than that many are used, which is less than now
--   put(key, added)   adds units, and writes the value
--   settle(key, change, period, part, was)   puts what a take costs more now if its period goes on, and reports that
-- All but look are about what look has seen last.
local function newCounters()
  local counters, second, many = {}, 1000000, 10000000000 -- many: more units than a period has

  local function within(units) return math.min(math.max(units, 0), many - 1) end

  local function ttlOf(left) return math.ceil(left / 1000) + 1000 end

  -- f, a fixed window. The value is the number of its period, or the minute in which that of a calendar begins, modulo
  -- 800,000, times many, and the units: less than 2^53.
  function counters.f(_, window, instants)
    local calendar = instants ~= '' and {struct.unpack('>I8I8I8I8', instants)}

    -- find returns when a period begins and ends, and the value without units.
    local function find(at)
      local begin, ends, length, i = at - at % window, at - at % window + window, window, 1
      if calendar then
        while i < 3 and at >= calendar[i + 1] do i = i + 1 end
        begin, ends, length = calendar[i], calendar[i + 1], 60 * second
      end
      return begin, ends, (begin - begin % length) / length % 800000 * many
    end

    local present, presentEnds, presentValue = find(now)
    local begin, ends, base, units, kept

    local function till() return math.max(ends - now, 1) end

    local function put(key, added)
      added = within(units + added) - units
      if kept then
        call('INCRBY', key, added == 1 and '1' or added)
      else
        call('SET', key, string.format('%.0f', base + units + added), 'PX', ttlOf(till()))
      end
    end

    local function look(key)
      local value = call('GET', key)
      begin, ends, base = present, presentEnds, presentValue
      units = value and value - base or -1
      kept = units >= 0 and units < many
      if kept then return units, false, begin end
      local ahead = value and ((value - value % many - base) / many) % 800000 or 101
      units = ahead <= 100 and value % many or 0
      if ahead > 100 then return 0, false, begin end -- none, or one of the past
      local nextBegin, nextEnds, nextBase = find(now + second)
      kept = value - nextBase == units
      if kept then begin, ends, base = nextBegin, nextEnds, nextBase end
      return units, not kept, begin
    end

    local function settle(key, change, period)
      if period ~= begin or not kept then return false end
      put(key, change)
      return true
    end

    return {most = many - 1, look = look, till = till, put = put, settle = settle}
  end

  -- mulDiv returns a * b / c, and the rest, exactly: a is less than 2^35, b and c are at most 2^45, a or b at most c.
  local function mulDiv(a, b, c)
    if a * b < 9007199254740992 then return (a * b - a * b % c) / c, a * b % c end
    local quotient, rest = 0, 0
    for shift = 28, 0, -7 do -- 7 bits at once, since more would not be exact
      local part = rest * 128 + math.floor(a / 2 ^ shift) % 128 * b
      rest = part % c
      quotient = quotient * 128 + (part - rest) / c
    end
    return quotient, rest
  end

  -- s, a sliding counter. The value has the instant of the latest take in 16 digits, the units of its period in 10, and
  -- those of the period before in 10.
  function counters.s(_, window)
    local at, begin, units, before

    local function till(used)
      if used >= units then return begin + window - now - mulDiv(used - units, window, before) end
      return begin + 2 * window - now - mulDiv(used, window, units)
    end

    local function put(key, added)
      units = within(units + added)
      call('SET', key, text(at) .. string.format('%010d%010d', units, before), 'PX', ttlOf(begin + 2 * window - now))
    end

    local function look(key)
      local value = call('GET', key)
      local last = value and value:sub(1, 16) + 0 or 0
      local moved = last > now + second
      at = moved and now or math.max(now, last)
      begin, units, before = at - at % window, 0, 0
      if last >= begin then
        units, before = value:sub(17, 26) + 0, value:sub(27) + 0
      elseif last >= begin - window then
        before = value:sub(17, 26) + 0
      end
      local whole, rest = mulDiv(before, begin + window - at, window)
      return units + whole + (rest > 0 and 1 or 0), moved, begin
    end

    local function settle(key, change, period)
      if period < begin - window then return false end
      if period < begin then before, change = within(before + change), 0 end
      put(key, change)
      return true
    end

    return {most = many - 1, look = look, till = till, put = put, settle = settle}
  end

  -- t, a token bucket. The value has an instant in 16 digits, and how long after it the bucket is full: in parts of a
  -- microsecond, as the interval is, in which a unit comes back.
  function counters.t(quota, interval, parts)
    local ahead -- how long after now the bucket is full
    parts = parts + 0

    local function till(used) return math.ceil((ahead - used * interval) / parts) end

    local function put(key, added)
      ahead = math.max(ahead, math.min(ahead + added * interval, quota * interval))
      call('SET', key, stamp .. text(ahead), 'PX', ttlOf(ahead / parts))
    end

    local function look(key)
      local value = call('GET', key) or stamp .. '0'
      local past = now - value:sub(1, 16)
      local moved = past < -second
      ahead = value:sub(17) + 0
      if not moved then ahead = math.max(ahead - past * parts, 0) end
      local rest = ahead % interval
      local used, part = (ahead - rest) / interval + (rest > 0 and 1 or 0), ahead % parts
      return used, moved, now + (ahead - part) / parts, part
    end

    local function settle(key, change, period, part, was)
      -- When all units of the take have come back: these are not given back. It has taken the quota at most.
      local own = (period - now) * parts + part + math.min(was, quota) * interval
      local back = math.min(math.min(-change, quota) * interval, math.max(own, 0))
      if change < 0 then ahead = math.max(ahead - back, 0) end
      put(key, math.max(change, 0))
      return true
    end

    return {most = quota, look = look, till = till, put = put, settle = settle}
  end

  return counters
end
