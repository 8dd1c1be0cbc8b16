-- Adds weights.
-- Expects what weights_sums.lua, weights_write.lua and weights_packs.lua provide. Sets addWeight, provides addTakes.

-- addBlock adds a block of a level that ends at an instant.
local function addBlock(key, level, at)
  local last = call('ZRANGE', key, highs[level], lows[level], 'BYSCORE', 'REV', 'LIMIT', '0', '1')[1]
  local below = level - 1
  local from = last and after(below, select(2, struct.unpack('>Bd', last))) or lows[below]
  local sum = sumOf(below, call('ZRANGEBYSCORE', key, from, scoreOf(below, at)))
  call('ZADD', key, scoreOf(level, at), struct.pack('>Bdd', level, at, sum))
end

-- addWeight gives an entry of that instant a weight. all is the sum of all weights with this one.
addWeight = function(key, entry, at, weight, all)
  local removed, added, ends = changes(key, at, weight, all)
  if not (ends and insert(key, ends, entry, at, weight, removed, added)) then
    added[#added + 1], added[#added + 2] = scoreOf(0, at), single(entry, weight)
  end
  write(key, removed, added)
  local high, low = entry:byte(7, 8)
  local size = not ends and low % 16 == 0 and call('ZCARD', key)
  if size and low % (size < 400 and 16 or size < 1000 and 32 or 64) == 0 then
    addBlock(key, 1, at)
    if low == 0 and high % 4 == 0 then addBlock(key, 2, at) end
    -- Up to 128 members Redis keeps a set in some 26 bytes each, unless one is longer than 64 bytes.
    if size > 96 then packBlocks(key) end
  end
end

-- addTakes adds takes of a cost to a log, or one for all steps if it is up to so many units. all is the sum of all
-- weights. It returns how many of their units were there already, and that sum.
local function addTakes(key, score, ids, takes, cost, upTo, ending, all)
  local each, there = cost, takes
  if upTo then cost, each, takes = takes, 1, 1 end
  for t = 1, takes do
    local entry = ids:sub(8 * t - 7, 8 * t) .. ending
    if call('ZADD', key, 'NX', score, entry) == 1 then
      there, all = there - cost / each, all + cost - 1
      addWeight(key, entry, now, cost - 1, all)
    end
  end
  return there * each, all
end
