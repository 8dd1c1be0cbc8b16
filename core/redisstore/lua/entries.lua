-- Lists a part of what a window holds. docs/internals.md, "Redis formats", describes what a log holds.
-- KEYS[1] the log; ARGV: 1 the window (us), 2 how many entries a part has, 3 the instant after which this part begins,
-- 4 the instant up to which the parts are; 3 and 4 are 0 for the first part. Reply: the latter, or 0 if this part is
-- the last one; then instant (us) and units of each take, oldest first. All takes of one instant are in one part.
-- include clock
-- include mark
-- include marks
local key, size, upto = KEYS[1], ARGV[2] + 0, ARGV[4] + 0
local head = call('ZRANGE', key, '0', '0', 'WITHSCORES')
local mark, near, weighted = readMark(head)
local shift, from = mark and not near and far or 0, math.max(now - ARGV[1], ARGV[3] + 0) + 1
if upto == 0 and head[1] then upto = call('ZRANGE', key, '-1', '-1', 'WITHSCORES')[2] - shift end
local found = call('ZRANGEBYSCORE', key, from + shift, upto + shift, 'WITHSCORES', 'LIMIT', '0', size)
local more, of = #found == 2 * size, {}
if more then
  local score, same = found[#found], 0
  while found[#found - 2 * same] == score do same = same + 1 end
  for _, text in ipairs(call('ZRANGEBYSCORE', key, score, score, 'WITHSCORES', 'LIMIT', same, '-1')) do
    found[#found + 1] = text
  end
end
if weighted and found[1] then
  local last = found[#found] - shift
  local function score(scale, at) return string.format('%.17g', (at + far) * scale) end
  for _, member in ipairs(call('ZRANGEBYSCORE', key, score(2 ^ -53, from), score(2 ^ -53, last))) do
    of[member:sub(1, 8) .. member:sub(13)] = struct.unpack('>I4', member, 9)
  end
  local packs = call('ZRANGEBYSCORE', key, score(2 ^ -55, from), score(2 ^ -55, last))
  -- A pack has weights up to its score, so the next one may have some of this part.
  packs[#packs + 1] = call('ZRANGEBYSCORE', key, '(' .. score(2 ^ -55, last), '(0.25', 'LIMIT', '0', '1')[1]
  for _, pack in ipairs(packs) do
    for i = 1, #pack, 20 do
      local weight, rest = struct.unpack('>I4B', pack, i + 8)
      of[pack:sub(i, i + 7) .. (rest == 2 and '' or string.char(rest))] = weight
    end
  end
end
local reply = {more and upto or 0}
for i = 1, #found, 2 do reply[i + 1], reply[i + 2] = found[i + 1] - shift, 1 + (of[found[i]] or 0) end
return reply
