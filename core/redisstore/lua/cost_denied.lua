-- Writes the reply about a take that has no room in a log of one limit.
-- Expects key, quota, window, cost, plain, and what cost_look.lua provides. Provides told and the reply; changes r.
local instant = weights().unitAt(key, quota - cost + 1, far) -- of the unit that must leave
if instant <= now + far then
  told = true
  if plain then
    r = r + 1
    reply[r] = 0 -- not a short reply
  end
  reply[r + 1], reply[r + 2], reply[r + 3], reply[r + 4], r = 0, instant - far - now + window, held, left, r + 4
end
