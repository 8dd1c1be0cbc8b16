-- Books units ahead in logs, each in one step after the settlement of an earlier booking and a take. docs/internals.md,
-- "Redis formats", describes KEYS, ARGV, the reply, and what a log holds.
-- include clock
-- include mark
-- include weights

local n = #KEYS
local reply, r, peek, plain, varies = {}, 0, false, nil, false
local limits, decide, book, settleBooked, failed = (#ARGV - n - 5) / 2, nil, nil, nil, nil
-- include state
local function make()
  -- include marked
  -- include settle_booked
  -- include decide
  -- include book_units
end
make()
local usual = mode

for k = 1, n do
  local id, taken, settled, used, booked, most, share, lease = struct.unpack('>c8I4c8I4c8I4I4I4', ARGV[k])
  if settled ~= '\0\0\0\0\0\0\0\0' then settleBooked(KEYS[k], settled, used) end
  mode = taken > 0 and usual or 'p'
  r, failed = decide(KEYS[k], taken > 1 and id .. ARGV[k]:sub(9, 12) or id, r + 2)
  if failed then return failed end
  reply[r - 2 * limits - 3], reply[r - 2 * limits - 2] = book(booked, taken, most, share, lease)
end
return reply
