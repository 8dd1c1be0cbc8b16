-- Books units ahead in logs, each in one step after the settlement of an earlier booking and a take. docs/internals.md,
-- "Redis formats", describes KEYS, ARGV, the reply, and what a log holds.
-- include clock
-- include mark
-- include weights

local n, none = #KEYS, '\0\0\0\0\0\0\0\0'
local reply, r, peek, plain, varies = {}, 0, false, nil, false
local limits, ask, decide, book, settle, failed = (#ARGV - n - 5) / 2, nil, nil, nil, nil, nil
-- include state
local usual = ARGV[n + 1]
if limits == 1 and usual == 'c' and ARGV[n + 2] == ARGV[n + 7] and ARGV[n + 4] == '1' then
  local ttl, quota, window = ARGV[n + 3] + 0, ARGV[n + 6] + 0, ARGV[n + 7] + 0
  -- include book_short
end

for k = 1, n do
  local id, taken, settled, spent, booked, most, share, lease = struct.unpack('>c8I4c8I4c8I4I4I4', ARGV[k])
  settled = settled ~= none and settled
  if ask and ask(KEYS[k], id, taken, settled, spent, booked, most, share, lease) then
    r = r + 6
  else
    if not decide then
      local function make()
        -- include marked
        -- include settle_units
        -- include decide
        -- include book_units
      end
      make()
      usual = mode
    end
    if settled then settle(KEYS[k], settled, spent) end
    mode = taken > 0 and usual or 'p'
    r, failed = decide(KEYS[k], taken > 1 and id .. ARGV[k]:sub(9, 12) or id, r + 2)
    if failed then return failed end
    reply[r - 2 * limits - 3], reply[r - 2 * limits - 2] = book(booked, taken, most, share, lease)
  end
end
return reply
