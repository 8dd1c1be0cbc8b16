-- The short path of one limit and a log with weights. It leaves denials undecided where entries have expired or the
-- cost is above the quota, and logs with entries from the future. The arguments may have the long form, as where a
-- window is long.
-- Expects key, id, and what take_weighted.lua, clock.lua and weights.lua provide. Provides told and the reply; changes
-- r.
local first = plain and n or n + 4
local keepText, quota, window = ARGV[first + 3], ARGV[first + 2] + 0, ARGV[first + 3] + 0
local usual = plain or ARGV[n + 1] == 'c' and ARGV[n + 2] == keepText and ARGV[n + 4] == '1'
local head = usual and call('ZRANGE', key, '0', '1', 'WITHSCORES') -- the mark and the sum of all weights
if head and head[1] == 'keep:' .. keepText .. 'w' then
  -- include cost_look
  local entry, cost = id:sub(1, 8), #id == 12 and struct.unpack('>I4', id, 9) or 1
  if sign > 0 and held + cost <= quota and call('ZCOUNT', key, (now + far) * 2 ^ -57, '(0.0625') == 0 and
    call('ZADD', key, 'NX', now + far, entry) == 1 then
    told = true
    -- include cost_added
    if plain then
      r = r + 1
      reply[r] = sign * (held * (window + 1) + left + 1)
    else
      reply[r + 1], reply[r + 2], reply[r + 3], reply[r + 4], r = 1, 0, held, left, r + 4
    end
  elseif sign > 0 and left > 0 and held + cost > quota and cost <= quota and not call('ZSCORE', key, entry) then
    -- include cost_denied
  end
end
