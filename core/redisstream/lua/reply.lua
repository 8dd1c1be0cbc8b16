-- Writes the reply of one log.
-- Expects takes, mode, plain, quota, window, and what look.lua and record.lua provide. Provides reply
-- and r.
local left, wait = 0, 0
if size > 0 then left = math.min(oldest, now) + window - now end
if admitted < takes then
  local instant = oldest -- that of the unit which must leave: with quota 5, the fifth newest
  if size > quota then
    local found
    if size < 2 * quota then -- from the end that is nearer: a quota may have become much smaller
      found = call('XRANGE', key, '-', '+', 'COUNT', size - quota + 1)
    else
      found = call('XREVRANGE', key, '+', '-', 'COUNT', quota)
    end
    instant = instantOf(found[#found])
  end
  wait = size < quota and 1 or math.min(instant, now) + window - now -- 1: if there is room by now
  if mode ~= 'p' and instant > now then rebuilding().repair(key) end -- so that it leaves in one window at most
end
if plain and takes == 1 and (admitted == 1 and held < quota or admitted == 0 and size == quota) then
  r = r + 1
  reply[r] = (2 * admitted - 1) * (held * (window + 1) + left + 1) -- a short reply
else
  if plain then
    r = r + 1
    reply[r] = 0 -- not a short reply
  end
  reply[r + 1], reply[r + 2], reply[r + 3], reply[r + 4], r = admitted, wait, held, left, r + 4
end
