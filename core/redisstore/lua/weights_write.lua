-- Writes weights and their sums.
-- Expects what weights_sums.lua provides. Provides the functions below.

-- single returns the member of level 0 that an entry's weight has.
local function single(entry, weight) return entry:sub(1, 8) .. struct.pack('>I4', weight) .. entry:sub(9) end

-- write removes members and then adds others, each after its score.
local function write(key, removed, added)
  if removed[1] then call('ZREM', key, unpack(removed)) end
  call('ZADD', key, unpack(added))
end

-- changes returns what write has to remove and to add so that the sum of all weights is all, and the sums of the blocks
-- that an instant is in have changed. It also returns the end of the block of level 1, nil if there is none.
local function changes(key, at, change, all)
  local removed, added, ends = {}, {all * 2 ^ -80, 'sum'}, nil
  for level = 1, 2 do
    local block = call('ZRANGEBYSCORE', key, scoreOf(level, at), highs[level], 'WITHSCORES', 'LIMIT', '0', '1')
    if not block[1] then break end
    local _, last, sum = struct.unpack('>Bdd', block[1])
    ends, removed[level] = ends or last, block[1]
    added[2 * level + 1], added[2 * level + 2] = block[2], struct.pack('>Bdd', level, last, sum + change)
  end
  return removed, added, ends
end
