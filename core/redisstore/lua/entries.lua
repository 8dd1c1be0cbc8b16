-- Lists what a window holds. docs/internals.md, "Redis formats", describes what a log holds.
-- KEYS[1] the log; ARGV[1] the window (us). Reply: instant (us) and units of each take, oldest first.
-- include clock
-- include mark
local head = call('ZRANGE', KEYS[1], '0', '0', 'WITHSCORES')
local mark, near, kept
-- include mark_read
local shift = mark and not near and far or 0
local found = call('ZRANGEBYSCORE', KEYS[1], now + shift - ARGV[1] + 1, '+inf', 'WITHSCORES')
local reply, r, last = {}, 0, nil
for i = 1, #found, 2 do
  local id = found[i]:sub(1, 8) -- the units of a take stand side by side
  if id == last then
    reply[r] = reply[r] + 1
  else
    reply[r + 1], reply[r + 2], r, last = found[i + 1] - shift, 1, r + 2, id
  end
end
return reply
