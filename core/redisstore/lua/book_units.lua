-- Books units in the log that was decided about.
-- Expects what state.lua, marked.lua and decide.lua provide. Sets book.

-- addBooking adds an entry of units at an instant, unless there is one. The TTL of the log was set now.
local function addBooking(id, units, at)
  summary = summary or weights().begin(key, mark, kept or keep, scale)
  if call('ZADD', key, 'NX', textOf(scale * at), id) == 0 then return false end
  weights().put(key, summary, id, at, scale, units - 1)
  summary.lag = math.max(summary.newest - now, 0)
  if extends then summary.window = keep end
  weights().save(key, summary)
  return true
end

-- book books units that end after a lease (us), if the take was admitted. It returns how many, and how many entries are
-- stamped after now beside them.
book = function(id, taken, most, share, lease)
  if summary and not summary.near and scale == 1 then -- the take has changed the scores
    scale, logStamp = 2, textOf(2 * now)
  end
  local others, room = call('ZCOUNT', key, '(' .. logStamp, '+inf'), most
  if admitted == 0 and taken > 0 or most == 0 then return 0, others end
  for i = 1, deciding do room = math.min(room, (quotas[i] - used[i] - taken) / math.max(share, 4 * (1 + others))) end
  room = math.floor(room)
  if admitted > 0 and room >= 2 and addBooking(id, room, now + lease) then
    if taken == 0 or lease > 500000 then call('PEXPIRE', key, logTtl + math.ceil(lease / 1000)) end
    return room, others
  end
  local at = (call('ZSCORE', key, id) or 0) / scale -- if it was executed before
  if at == 0 then return 0, others end
  if at > now then others = others - 1 end
  return 1 + (summary and weights().splice(key, summary, id, at, scale, 4, true) or 0), others
end
