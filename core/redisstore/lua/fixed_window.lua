-- A fixed window. Its value is the number of the period, modulo 8 * 10^7, times 10^8, and the units: no number above
-- 2^53.
-- Expects first, now, call. Sets view, till, put.
local scale, same, window = 100000000, 80000000, ARGV[first] + 0
local mark, units, left, kept -- left: how long the period lasts (us); kept: whether the value's mark and TTL stay

view = function(value)
  local number, ahead, moved = (now - now % window) / window, same - 1, false
  units = 0
  if value then
    units = value % scale
    ahead = ((value - units) / scale - number) % same
  end
  if ahead > 0 and ahead < same / 2 then -- the clock was set back
    number, ahead, moved = number + 1, ahead - 1, ahead > 1
  elseif ahead > 0 then
    units = 0
  end
  mark, left, kept = number % same, (number + 1) * window - now, ahead == 0
  return units, moved
end

till = function() return left end

put = function(key, added)
  units = units + added
  if kept then
    call('INCRBY', key, added)
  else
    call('SET', key, string.format('%.0f', mark * scale + units), 'PX',
      string.format('%.0f', math.ceil(left / 1000) + 1000))
  end
end
