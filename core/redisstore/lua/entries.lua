-- Lists what a window holds. docs/internals.md, "Redis formats", describes what a log holds.
-- KEYS[1] the log; ARGV[1] the window (us). Reply: instant (us) and units of each take, oldest first.
-- include clock
-- include mark
local key, of = KEYS[1], {}
local head = call('ZRANGE', key, '0', '0', 'WITHSCORES')
local mark, near, weighted, kept
-- include mark_read
local shift, from = mark and not near and far or 0, now - ARGV[1] + 1
if weighted then
  for _, member in ipairs(call('ZRANGEBYSCORE', key, string.format('%.17g', (from + far) * 2 ^ -53), '(1')) do
    of[member:sub(1, 8) .. member:sub(13)] = struct.unpack('>I4', member, 9)
  end
  for _, pack in ipairs(call('ZRANGEBYSCORE', key, string.format('%.17g', (from + far) * 2 ^ -55), '(0.25')) do
    for i = 1, #pack, 20 do
      local weight, rest = struct.unpack('>I4B', pack, i + 8)
      of[pack:sub(i, i + 7) .. (rest == 2 and '' or string.char(rest))] = weight
    end
  end
end
local found = call('ZRANGEBYSCORE', key, from + shift, '+inf', 'WITHSCORES')
local reply, r, last = {}, 0, nil
for i = 1, #found, 2 do
  local id = found[i]:sub(1, 8) -- the units of a take stand side by side
  if id == last then
    reply[r] = reply[r] + 1
  else
    reply[r + 1], reply[r + 2], r, last = found[i + 1] - shift, 1 + (of[found[i]] or 0), r + 2, id
  end
end
return reply
