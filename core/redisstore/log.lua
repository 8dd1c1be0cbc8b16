-- Lists what a window holds. KEYS[1] the log; ARGV[1] the window (us).
-- Reply: instant (us) and units of each take, oldest first. For the mark see take.lua.
local call = redis.call

local time = call('TIME')
local now = time[1] * 1000000 + time[2]
local head = call('ZRANGE', KEYS[1], '0', '0', 'WITHSCORES')
local far = head[2] == '0' and head[1]:sub(1, 5) == 'keep:' and 4000000000000000 or 0
now = now + far
local found = call('ZRANGEBYSCORE', KEYS[1], now - ARGV[1] + 1, '+inf', 'WITHSCORES')
local reply, r, last = {}, 0, nil
for i = 1, #found, 2 do
  local id = found[i]:sub(1, 8) -- the units of a take stand side by side
  if id == last then
    reply[r] = reply[r] + 1
  else
    reply[r + 1], reply[r + 2], r, last = found[i + 1] - far, 1, r + 2, id
  end
end
return reply
