-- Decides takes as take_weighted.lua does, and books units ahead: an argument of 46 bytes is a booking. An earlier one
-- is settled, a take decided and units booked in one step. docs/internals.md, "Redis formats", describes argument and
-- reply.
-- include clock
-- include weights
-- include weighted
local none, askBooking, book, settle = '\0\0\0\0\0\0\0\0', nil, nil, nil
if usual then
  -- include cost
  -- include book_short
end
-- include state

local function make()
  -- include marked
  -- include settle_units
  -- include decide
  -- include book_units
end

-- booking settles, takes and books, and replies. It returns an error, or nil.
local function booking(key, argument)
  local id, taken, settled, spent, booked, most, share, lease = struct.unpack('>c8I4c8I4c8I4I4I6', argument)
  settled = settled ~= none and settled
  if usual and askBooking(key, id, taken, settled, spent, booked, most, share, lease) then
    r = r + 6 + whole
    return
  end
  if not decide then make() end
  lastOf = {}
  if settled then settle(key, settled, spent) end
  local charge, at = mode, r + 1
  mode = taken > 0 and charge or 'p'
  r, failed = decide(key, taken > 1 and id .. argument:sub(9, 12) or id, r + 2)
  if not failed then reply[at], reply[at + 1] = book(booked, taken, most, share, lease) end
  mode = charge
  return failed
end

for k = 1, n do
  id, base = ARGV[k], k - 1
  if #id == 46 then
    failed = booking(KEYS[k], id)
    if failed then return failed end
  else
    -- include cost_asked
    if told == 0 then
      if not decide then make() end
      r, failed = decide(KEYS[k], id, r)
      if failed then return failed end
    end
  end
end
return reply
