-- A fixed window. Its value is a decimal number: in front of the last eight digits, which are the units, is the number
-- of the period, modulo 10^10 and plus that; and of calendar periods, the second of the latest take. Of these the value
-- stays for one period more, since the calendar of the limit may change.
-- Expects algorithm, first, now, call. Sets view, till, put.
local same, window = 10000000000, ARGV[first] + 0
local mark, units, left -- left: how long the period lasts (us)
local kept, stays -- whether the value's mark stays, and so its TTL; how long the value is kept after its period (us)

-- period finds the period that an instant is in.
local function period(value)
  if algorithm == 'w' then
    local number = (now - now % window) / window
    local ahead = value and (value:sub(1, -9) - number) % same or same - 1
    if ahead > 0 and ahead < same / 2 then -- the clock was set back
      number, ahead = number + 1, (ahead - 1) % same
    elseif ahead > 0 then
      units = 0
    end
    mark, left, stays = same + number % same, (number + 1) * window - now, 0
    return ahead == 0
  end
  local i, last = 1, value and value:sub(1, -9) * 1000000 or 0
  local from = math.min(math.max(now, ARGV[first] + 0), ARGV[first + 3] - 1)
  local given = from
  while from >= ARGV[first + i] + 0 do i = i + 1 end
  if last < ARGV[first + i - 1] + 0 then
    units = 0
  elseif i < 3 and last >= ARGV[first + i] + 0 then
    from, i = ARGV[first + i] + 0, i + 1
  end
  mark, left, stays = math.floor(from / 1000000), ARGV[first + i] - given, ARGV[first + 4] + 0
  return units > 0 and mark * 1000000 == last
end

view = function(value)
  units = value and value:sub(-8) + 0 or 0
  kept = period(value)
  return units
end

till = function() return left end

put = function(key, added)
  units = units + added
  local value = string.format('%.0f%08d', mark, units)
  if kept then
    call('SET', key, value, 'KEEPTTL')
  else
    call('SET', key, value, 'PX', string.format('%.0f', math.ceil((left + stays) / 1000) + 1000))
  end
end
