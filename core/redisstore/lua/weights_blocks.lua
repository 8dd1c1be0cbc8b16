-- Blocks of weights: 4 bytes for each of the latest entries up to the block's end, oldest first. The weights of the
-- entries after all other blocks are in the summary, which is the open block.
-- Provides the functions below.
local zero, longest, unknown = '\0\0\0\0', 16777215, -128

-- sumOf returns the sum of the weights in a text from one on up to another.
local function sumOf(text, from, to)
  local sum = 0
  for i = 4 * from - 3, 4 * to, 4 do sum = sum + struct.unpack('>I4', text, i) end
  return sum
end

local function writeBlock(key, ends, sum, text)
  if text ~= '' then call('ZADD', key, '-' .. textOf(ends), struct.pack('>I7I7', ends, sum) .. text) end
end

local function firstStamp(key, scale)
  return (call('ZRANGEBYSCORE', key, '1', '+inf', 'WITHSCORES', 'LIMIT', '0', '1')[2] or 0) / scale
end

-- oldestBlock returns the oldest block, its end and the sum of its weights, or nil.
local function oldestBlock(key)
  local block = call('ZRANGE', key, '(0', '(-4e15', 'BYSCORE', 'REV', 'LIMIT', '0', '1')[1]
  if block then return block, struct.unpack('>I7I7', block) end
end

-- cutBlock removes the weights of the oldest block whose entries have left.
local function cutBlock(key, s)
  if s.gone <= 0 then return end
  local block, ends, sum = oldestBlock(key)
  call('ZREM', key, block)
  writeBlock(key, ends, sum - sumOf(block:sub(15), 1, s.gone), block:sub(4 * s.gone + 15))
  s.gone = 0
end

-- begin returns the summary of a log that has none, and removes its mark.
local function begin(key, mark, window, scale)
  local total = call('ZCOUNT', key, '1', '+inf')
  local newest = total > 0 and call('ZRANGE', key, '-1', '-1', 'WITHSCORES')[2] / scale or 0
  if mark then call('ZREM', key, mark) end
  return {total = total, first = firstStamp(key, scale), newest = newest, window = window, gone = unknown,
    lag = longest, near = scale == 1, open = ''}
end

-- save writes a summary in place of those before, and removes a log without entries.
local function save(key, s)
  if s.total == 0 then return call('UNLINK', key) end
  if s.near and call('ZCOUNT', key, '1', '+inf') < many then s.near = doubleScores(key) end
  call('ZREMRANGEBYSCORE', key, '-inf', '(-4e15')
  local n, most = #s.open / 4, 8
  if n >= most then
    -- Up to 128 members Redis keeps a set in some 26 bytes each, unless one is longer than 64 bytes.
    local size = call('ZCARD', key)
    most = size < 120 and 8 or size < 4000 and 32 or 120
    if n >= most then
      -- Bookings stay in the open block, which the next command reads.
      local ends = math.min(s.newest, now)
      local later = s.newest > now and call('ZCOUNT', key, textOf((s.near and 1 or 2) * (now + 1)), '+inf') or 0
      local rest = 4 * math.max(n - later, 0)
      local sum = sumOf(s.open, 1, rest / 4)
      if sum > 0 then writeBlock(key, ends, sum, s.open:sub(1, rest)) elseif s.gone <= 0 then s.gone = unknown end
      s.open, n = s.open:sub(rest + 1), n - rest / 4
    end
  end
  local room = math.max(most - n, 1) + (s.near and 128 or 0)
  local member = struct.pack(layout, 2 ^ 53 - s.total, s.first, s.newest, s.window, s.gone, s.lag, room)
  call('ZADD', key, '-' .. textOf(s.newest + far), member .. s.open)
  s.unsaved = false
end

-- splice gives an entry of that instant another weight, false for none, and returns the one before; true changes
-- nothing. there is 4 if the entry has a place in its block, and 0 if it gets one.
local function splice(key, s, entry, at, scale, there, weight)
  local score = textOf(scale * at)
  local after, same = call('ZCOUNT', key, '(' .. score, '+inf'), call('ZRANGEBYSCORE', key, score, score)
  local place = #same
  while place > 1 and same[place] ~= entry do place = place - 1 end
  after = after + #same - place -- entries after this one
  local text, block, ends, sum = s.open, nil, nil, 0
  if 4 * after + math.max(there, 1) > #text then
    block = call('ZRANGE', key, '-' .. textOf(at), '(-4e15', 'BYSCORE', 'REV', 'LIMIT', '0', '1')[1] -- at it or after
    if block then
      ends, sum = struct.unpack('>I7I7', block)
      text, after = block:sub(15), after - call('ZCOUNT', key, '(' .. textOf(scale * ends), '+inf')
    end
  end
  local from = #text - 4 * after - there
  if from < 0 then -- it is before all that the block knows, where entries weigh nothing
    if s.gone <= 0 then s.gone = unknown end
    if weight == true or not weight or weight == 0 then return 0 end
    if place < #same and from + 4 * (#same - place) >= 0 then -- the block knows others of the same instant
      text, from = zero:rep(-from / 4) .. text, 0
    else
      block, ends, sum, text, from, there = nil, at, 0, zero:rep(#same), 4 * place - 4, 4
    end
  end
  local old = there > 0 and struct.unpack('>I4', text, from + 1) or 0
  if weight == true then return old end
  text = text:sub(1, from) .. (weight and struct.pack('>I4', weight) or '') .. text:sub(from + there + 1)
  if ends then
    if block then call('ZREM', key, block) end
    writeBlock(key, ends, sum - old + (weight or 0), text)
  else
    s.open = text
  end
  return old
end

-- put gives an entry that was added its weight. The last one of a log is in the open block.
local function put(key, s, entry, at, scale, weight)
  if at > s.newest or at == s.newest and s.open ~= '' and call('ZRANGE', key, '-1', '-1')[1] == entry then
    s.open = s.open .. struct.pack('>I4', weight)
    s.lag = math.min(s.lag + at - s.newest, longest)
    s.newest = at
  else
    splice(key, s, entry, at, scale, 0, weight)
  end
  s.first = s.total > 0 and math.min(s.first, at) or at
  s.total = s.total + weight + 1
end

-- addTakes adds takes of a cost to a log, or one for all steps if it is up to so many units. It returns how many of
-- their units were there already, and how many units the log has beyond one for each entry, which were so many before.
local function addTakes(key, s, at, scale, ids, takes, cost, upTo, ending, extra)
  local each, there = cost, takes
  if upTo then cost, each, takes = takes, 1, 1 end
  for t = 1, takes do
    local entry = ids:sub(8 * t - 7, 8 * t) .. ending
    if call('ZADD', key, 'NX', textOf(scale * at), entry) == 1 then
      there = there - cost / each
      put(key, s, entry, at, scale, cost - 1)
      extra = extra + cost - 1
    end
  end
  s.unsaved = true
  return there * each, extra
end
