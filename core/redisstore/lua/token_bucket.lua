-- A token bucket. Its value is the instant when it is full again, in microseconds since 1970, with three digits more
-- for nanoseconds if units do not take whole microseconds to come back. A number of Lua is not exact up to these, so
-- instants and times are a number of microseconds and one of nanoseconds below 1,000.
-- Expects first, now, call. Sets view, till, put.
local most, interval, fraction = ARGV[first - 1] + 0, ARGV[first] + 0, ARGV[first + 1] + 0
local ahead, nanos -- from now to that instant

-- times returns how long some units take to come back.
local function times(n)
  local sum = n * fraction
  return n * interval + math.floor(sum / 1000), sum % 1000
end

-- isAfter reports whether the bucket is full later than that.
local function isAfter(time, part) return ahead > time or ahead == time and nanos > part end

view = function(value)
  ahead, nanos = 0, 0
  if value then ahead, nanos = value:sub(1, 16) - now, (tonumber(value:sub(17)) or 0) end
  if ahead < 0 then ahead, nanos = 0, 0 end
  local moved = isAfter(times(10 * most)) -- see mostRefills in core/internal/counter
  if moved then ahead, nanos = times(most) end
  local used = math.floor((ahead + nanos / 1000) / (interval + fraction / 1000)) -- or nearly so
  while isAfter(times(used)) do used = used + 1 end
  while used > 0 and not isAfter(times(used - 1)) do used = used - 1 end
  return used, moved
end

till = function(used)
  local time, part = times(used)
  return ahead - time + (nanos > part and 1 or 0)
end

put = function(key, added)
  local time, part = times(added)
  nanos = nanos + part
  ahead, nanos = ahead + time + math.floor(nanos / 1000), nanos % 1000
  local value = string.format('%.0f', now + ahead)
  if fraction > 0 then value = value .. string.format('%03d', nanos) end
  call('SET', key, value, 'PX', string.format('%.0f', math.ceil(ahead / 1000) + 1000))
end
