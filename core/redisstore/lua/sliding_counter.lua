-- A sliding counter. Its value is a decimal number of three parts: the number of the period; the units of the period,
-- in eight digits; and those of the period before, in eight.
-- Expects first, now, call. Sets view, till, put.
local window = ARGV[first] + 0
local number, units, before, from, ends

-- mulDiv returns a * b / c, and the rest, exactly: a is less than 2^28, b and c are at most 2^45, a or b is at most c.
-- It divides by parts of 7 bits, as products of all would not be exact.
local function mulDiv(a, b, c)
  local quotient, rest = 0, 0
  for _, bits in ipairs({2097152, 16384, 128, 1}) do
    local part = rest * 128 + math.floor(a / bits) % 128 * b
    rest = part % c
    quotient = quotient * 128 + (part - rest) / c
  end
  return quotient, rest
end

-- past returns how many units of the period before count.
local function past()
  local whole, rest = mulDiv(before, ends - from, window)
  return whole + (rest > 0 and 1 or 0)
end

view = function(value)
  local moved = false
  number, units, before, from = (now - now % window) / window, 0, 0, now
  if value then
    local ahead = value:sub(1, -17) - number
    units, before = value:sub(-16, -9) + 0, value:sub(-8) + 0
    if ahead > 0 then -- the clock was set back
      number = number + 1
      from, moved = number * window, ahead > 1
    elseif ahead == -1 then
      units, before = 0, units
    elseif ahead < 0 then
      units, before = 0, 0
    end
  end
  ends = (number + 1) * window
  return units + past(), moved
end

till = function(used)
  if used >= units then return ends - now - mulDiv(used - units, window, before) end
  return ends - now + window - mulDiv(used, window, units)
end

put = function(key, added)
  units = units + added
  local value = string.format('%.0f%08d%08d', number, units, before)
  call('SET', key, value, 'PX', string.format('%.0f', math.ceil((ends + window - now) / 1000) + 1000))
end
