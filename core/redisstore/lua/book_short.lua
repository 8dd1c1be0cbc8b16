-- The short path of bookings in logs with weights and of one limit: the latest entry is the booking that is settled, or
-- none is settled, and no other entry is later than now.
-- Expects quota, window, ttls, whole, reply, r; twice, pack and parse of cost.lua; what clock.lua and weights.lua
-- provide. Sets askBooking.

-- before reports whether an ID comes before another one in a log.
local function before(id, other)
  local high, low = parse('>I4I4', id)
  local otherHigh, otherLow = parse('>I4I4', other)
  return high < otherHigh or high == otherHigh and low < otherLow
end

-- askBooking settles, takes and books, and replies. It returns whether it has decided.
askBooking = function(key, id, taken, settled, spent, booked, most, share, lease)
  local member = call('ZRANGE', key, '0', '0')[1]
  if taken == 0 or most == 0 or not member or #member < 32 then return false end
  local total, first, newest, kept, gone, lag, room = parse(layout, member)
  local open, ends, at, unsaved = member:sub(33), now + lease, nil, nil
  if kept ~= window or room >= 128 or ends <= newest or call('ZSCORE', key, id) then return false end
  local later = call('ZCOUNT', key, twice, '+inf')
  if settled then
    if later > 1 or open == '' or call('ZRANGE', key, '-1', '-1')[1] ~= settled then return false end
    at = later == 0 and call('ZSCORE', key, settled) / 2 or now + 1
    if at <= now - window then return false end
  elseif later > 0 or call('ZSCORE', key, booked) then -- it may be left of one whose take was removed by a reset
    return false
  end
  if #open == (settled and 4 or 0) and call('ZCOUNT', key, '(-4e15', '-' .. stamp) > 0 then
    return false -- a settlement has written a block at this instant: it has the weights of what comes now
  end
  if first <= now - window then
    unsaved = readSummary(member)
    weights().drop(key, unsaved, now - window, 2, 0)
    first, gone, open = unsaved.first, unsaved.gone, unsaved.open
    total = unsaved.total
  else
    total = 2 ^ 53 - total
  end
  if settled then
    total = total - 1 - parse('>I4', open, #open - 3)
    if total == 0 then first = math.min(at, now) end -- it is the only entry
    total = total + spent
  end
  if total == 0 then first = now end
  local units = math.min(most, math.floor((quota - total - taken) / math.max(share, 4)))
  if units < 2 or first <= now - window then -- drop has left expired entries
    if unsaved then weights().save(key, unsaved) end
    return false
  end
  local weight = pack('>I4', taken - 1)
  if settled then
    open = open:sub(1, -5)
    if spent == 0 then
      call('ZREM', key, settled)
    elseif at < now or before(settled, id) then
      weight = pack('>I4', spent - 1) .. weight
    else
      weight = weight .. pack('>I4', spent - 1)
    end
  end
  open = open .. weight .. pack('>I4', units - 1)
  lag, room = lag + ends - newest, math.max(room - 2, 0)
  if lag > 900000 then lag = 0 end
  local new = pack(layout, 2 ^ 53 - total - taken - units, first, ends, window, gone, lag, room) .. open
  local endScore, newScore = textOf(2 * ends), '-' .. textOf(ends + far)
  if settled and spent > 0 and at > now then
    call('ZADD', key, twice, id, endScore, booked, newScore, new, twice, settled)
  else
    call('ZADD', key, twice, id, endScore, booked, newScore, new)
  end
  if room == 0 then weights().save(key, readSummary(new)) end
  if lag == 0 then call('PEXPIRE', key, ttls[1] + math.ceil(lease / 1000)) end
  if plain then reply[r + 3] = 0 end -- not a short reply
  local at = r + whole
  reply[r + 1], reply[r + 2], reply[at + 3], reply[at + 4] = units, 0, 1, 0
  reply[at + 5], reply[at + 6] = total, first - now + window
  return true
end
