-- Packs: members that have about eight weights of one block each, which takes a third of the memory. The weights of
-- the oldest block are not packed: so no pack has to be written anew for each entry that leaves the log.
-- A pack has a record of 20 bytes for each weight, by instants: the member of level 0, with a byte 2 if the entry's has
-- 8 bytes, and the instant in 7. Its score is that of its last record, or of one that was there. Weights of one instant
-- are in one pack, or outside packs.
-- Expects what weights_sums.lua and weights_write.lua provide, and addWeight. Provides the functions below.

local function recordOf(member, at) return (member .. '\2'):sub(1, 13) .. struct.pack('>I7', at) end

-- packBlocks packs the weights of the blocks after the latest pack, and not those of the oldest block. It looks at the
-- latest nine blocks only, since very many may be without weights.
local function packBlocks(key)
  local done = call('ZRANGE', key, highs[packs], lows[packs], 'BYSCORE', 'REV', 'LIMIT', '0', '1', 'WITHSCORES')[2]
  done = done and done * 2 ^ 55 - far or 0
  local blocks = call('ZRANGE', key, highs[1], lows[1], 'BYSCORE', 'REV', 'LIMIT', '0', '9')
  for b = #blocks - 1, 1, -1 do
    local last, ends = select(2, struct.unpack('>Bd', blocks[b + 1])), select(2, struct.unpack('>Bd', blocks[b]))
    local from, to, added, records = after(0, math.max(last, done)), scoreOf(0, ends), {}, {}
    local found = ends > done and call('ZRANGEBYSCORE', key, from, to, 'WITHSCORES') or {}
    for i = 1, #found, 2 do
      records[#records + 1] = recordOf(found[i], found[i + 1] * 2 ^ 53 - far)
      if #records >= 8 and found[i + 1] ~= found[i + 3] or i == #found - 1 then
        added[#added + 1], added[#added + 2] = found[i + 1] * 0.25, table.concat(records)
        records = {}
      end
    end
    if added[1] and #found < 8000 then
      call('ZREMRANGEBYSCORE', key, from, to)
      call('ZADD', key, unpack(added))
    end
  end
end

-- loosen removes packs and makes members of level 0 of their records after an instant.
local function loosen(key, found, since)
  local added = {}
  for p = 1, #found do
    for i = 1, #found[p], 20 do
      local rest, at = struct.unpack('>BI7', found[p], i + 12)
      if at > since then
        added[#added + 1], added[#added + 2] = scoreOf(0, at), found[p]:sub(i, i + (rest == 2 and 11 or 12))
      end
    end
  end
  for p = 1, #found, 2000 do call('ZREM', key, unpack(found, p, math.min(p + 1999, #found))) end
  for i = 1, #added, 2000 do call('ZADD', key, unpack(added, i, math.min(i + 1999, #added))) end
end

-- insert has write give an entry a weight in a pack of the block with that end. It reports whether there is one, which
-- is not too long.
local function insert(key, ends, entry, at, weight, removed, added)
  local pack = call('ZRANGEBYSCORE', key, scoreOf(packs, at), scoreOf(packs, ends), 'WITHSCORES', 'LIMIT', '0', '1')
  local old = pack[1]
  if not old or #old > 1000 then return false end
  local i = #old - 20 -- the records up to here come before it
  while i >= 0 and struct.unpack('>I7', old, i + 14) > at do i = i - 20 end
  removed[#removed + 1], added[#added + 1] = old, pack[2]
  added[#added + 1] = old:sub(1, i + 20) .. recordOf(single(entry, weight), at) .. old:sub(i + 21)
  return true
end

-- weightOf returns the weight of an entry of that instant, 0 if it has none; the member that has it, and the score of
-- that; of a pack, also the begin of the record.
local function weightOf(key, entry, at)
  local pack = call('ZRANGEBYSCORE', key, scoreOf(packs, at), highs[packs], 'WITHSCORES', 'LIMIT', '0', '1')
  local id, rest, i = entry:sub(1, 8), entry:byte(9) or 2, 0
  repeat
    i = pack[1] and pack[1]:find(id, i + 1, true)
  until not i or i % 20 == 1 and pack[1]:byte(i + 12) == rest
  if i then return struct.unpack('>I4', pack[1], i + 8), pack[1], pack[2], i end
  local score = scoreOf(0, at)
  for _, member in ipairs(call('ZRANGEBYSCORE', key, score, score)) do
    if member:sub(1, 8) .. member:sub(13) == entry then return (struct.unpack('>I4', member, 9)), member, score end
  end
  return 0
end

-- setWeight gives an entry of that instant another weight, 0 for none. It returns the one before, and the sum of all
-- weights, which was all before.
local function setWeight(key, entry, at, weight, all)
  local old, member, score, i = weightOf(key, entry, at)
  all = all - old + weight
  if old == 0 then
    if weight > 0 then addWeight(key, entry, at, weight, all) end
    return old, all
  end
  local new = weight > 0 and single(entry, weight) or ''
  if i then
    new = member:sub(1, i - 1) .. (weight > 0 and recordOf(new, at) or '') .. member:sub(i + 20)
  end
  local removed, added = changes(key, at, weight - old, all)
  removed[#removed + 1] = member
  if new ~= '' then added[#added + 1], added[#added + 2] = score, new end
  write(key, removed, added)
  return old, all
end
