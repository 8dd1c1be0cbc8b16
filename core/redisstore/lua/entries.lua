-- Lists a part of what a window holds. docs/internals.md, "Redis formats", describes what a log holds.
-- KEYS[1] the log; ARGV: 1 the window (us), 2 how many entries a part has, 3 the instant after which this part begins,
-- 4 the instant up to which the parts are; 3 and 4 are 0 for the first part. Reply: the latter, or 0 if this part is
-- the last one; then instant (us) and units of each take, oldest first, negative if it is after now. All takes of one
-- instant are in one part.
-- include clock
-- include marks
local key, size, upto = KEYS[1], ARGV[2] + 0, ARGV[4] + 0
local head = call('ZRANGE', key, '0', '0', 'WITHSCORES')
local _, _, scale, summary = readHead(head)
local from = math.max(now - ARGV[1], ARGV[3] + 0) + 1
if upto == 0 and head[1] then upto = call('ZRANGE', key, '-1', '-1', 'WITHSCORES')[2] / scale end
local found = call('ZRANGEBYSCORE', key, scale * from, scale * upto, 'WITHSCORES', 'LIMIT', '0', size)
local more, of = #found == 2 * size, {}
if more then
  local score, same = found[#found], 0
  while found[#found - 2 * same] == score do same = same + 1 end
  for _, text in ipairs(call('ZRANGEBYSCORE', key, score, score, 'WITHSCORES', 'LIMIT', same, '-1')) do
    found[#found + 1] = text
  end
end
if summary and found[1] then
  local n, last = #found / 2, call('ZCOUNT', key, '(' .. found[#found], '+inf') -- entries after those of this part

  -- fill reads the weights of a block. As many entries are newer than its last one.
  local function fill(text, newer)
    for i = #text - 3, 1, -4 do
      local place = n + last - newer
      if place >= 1 and place <= n then of[place] = struct.unpack('>I4', text, i) end
      newer = newer + 1
    end
  end

  fill(summary.open, 0)
  local first = '-' .. textOf(found[2] / scale)
  for _, block in ipairs(call('ZRANGE', key, first, '(-4e15', 'BYSCORE', 'REV', 'LIMIT', '0', n)) do
    local score = textOf(scale * struct.unpack('>I7', block))
    local newer = call('ZCOUNT', key, '(' .. score, '+inf')
    fill(block:sub(15), newer)
    if newer <= last then break end
  end
end
local reply = {more and upto or 0}
for i = 1, #found, 2 do
  local units, at = 1 + (of[(i + 1) / 2] or 0), found[i + 1] / scale
  reply[i + 1], reply[i + 2] = at, at > now and -units or units
end
return reply
