-- A fixed window of a calendar. Its value has four decimal numbers: the second of the latest take in 10 digits, the
-- units of its period in 8; then, unless the period before had none, the same of that. Since the calendar may change,
-- both count if that second is in the present period, and the value stays for one period more than it counts.
-- Expects first, now, call. Sets view, till, put.
local left, units, second, latest, before

view = function(value)
  local i, from, last = 1, math.min(math.max(now, ARGV[first] + 0), ARGV[first + 3] - 1), 0
  local moved = false
  while from >= ARGV[first + i] + 0 do i = i + 1 end
  local begin, ends = ARGV[first + i - 1] + 0, ARGV[first + i] + 0
  second, left, units, latest, before = math.floor(from / 1000000), ends - math.min(from, now), 0, 0, 0
  if value then
    last, units = value:sub(1, 10) * 1000000, value:sub(11, 18) + 0
    if #value > 18 then latest, before = value:sub(19, 28) + 0, value:sub(29) + 0 end
  end
  if last < begin then
    latest, before, units = last / 1000000, units, 0
  elseif last >= ends and i < 3 then -- the clock was set back
    second, left, begin = ends / 1000000, ARGV[first + i + 1] - math.min(from, now), ends
    moved = last >= ARGV[first + i + 1] + 0
  end
  if latest * 1000000 >= begin then units, before = units + before, 0 end
  return units, moved
end

till = function() return left end

put = function(key, added)
  units = units + added
  local value = string.format('%010.0f%08d', second, units)
  if before > 0 then value = value .. string.format('%010.0f%08d', latest, before) end
  call('SET', key, value, 'PX', string.format('%.0f', math.ceil((left + ARGV[first + 4]) / 1000) + 1000))
end
