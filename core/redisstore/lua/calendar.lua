-- A fixed window of a calendar. Its value is a decimal number: in front of the last eight digits, which are the units,
-- is the second of the latest take. It stays for one period more than it counts, since the calendar may change.
-- Expects first, now, call. Sets view, till, put.
local from, left, units, second, last

view = function(value)
  local i = 1
  from = math.min(math.max(now, ARGV[first] + 0), ARGV[first + 3] - 1)
  while from >= ARGV[first + i] + 0 do i = i + 1 end
  local ends = ARGV[first + i] + 0
  last, second, left = value and value:sub(1, -9) + 0, math.floor(from / 1000000), ends - math.min(from, now)
  units = last and last * 1000000 >= ARGV[first + i - 1] + 0 and value:sub(-8) + 0 or 0
  if units > 0 and last * 1000000 >= ends and i < 3 then -- the clock was set back
    second, left = ends / 1000000, ARGV[first + i + 1] - math.min(from, now)
  end
  return units
end

till = function() return left end

put = function(key, added)
  units = units + added
  local value = string.format('%.0f%08d', second, units)
  if last == second then
    call('SET', key, value, 'KEEPTTL')
  else
    call('SET', key, value, 'PX', string.format('%.0f', math.ceil((left + ARGV[first + 4]) / 1000) + 1000))
  end
end
