-- Removes the oldest entries of a log with weights.
-- Expects what weights_blocks.lua and weights_search.lua provide. Provides drop and dropToUnits.

-- drop removes the entries up to an instant, those of about 40 blocks at most. It returns how many, and how many units
-- the log then has beyond one for each entry, of which there were so many.
local function drop(key, s, at, shift, entries)
  local gone, left, dropped, block, ends, sum = 0, nil, 0, nil, nil, nil
  repeat
    block = call('ZRANGE', key, '(0', '(-4e15', 'BYSCORE', 'REV', 'LIMIT', '0', '1')[1]
    if block then
      ends, sum = struct.unpack('>I7I7', block)
      if ends <= at then
        call('ZREM', key, block)
        gone, dropped = gone + sum, dropped + 1
        if dropped == 40 then at = ends end
      end
    end
  until not block or ends > at or dropped == 40
  local from, text = textOf(at + shift), s.open
  if block and ends > at then
    text, left = block:sub(15), call('ZCOUNT', key, '(' .. from, textOf(ends + shift))
  elseif not block then
    left = call('ZCOUNT', key, '(' .. from, '+inf')
  end
  local old = left and #text / 4 - left or 0 -- weights of entries that leave
  if old > 0 then
    local change = sumOf(text, 1, old)
    gone, text = gone + change, text:sub(4 * old + 1)
    if block then
      call('ZREM', key, block)
      writeBlock(key, ends, sum - change, text)
    else
      s.open = text
    end
  end
  local removed = call('ZREMRANGEBYSCORE', key, '1', from)
  s.total, s.first = s.total - gone - removed, firstStamp(key, shift)
  return removed, s.total - entries + removed
end

-- dropToUnits removes the oldest units until so many are left, and returns what drop does. An entry of which a part is
-- left can no longer be found by its id.
local function dropToUnits(key, s, units, shift, entries)
  local score = unitAt(key, s, units, shift)
  local at, removed = score - shift, 0
  repeat
    local some = drop(key, s, at - 1, shift, 0)
    removed = removed + some
  until some == 0
  for _, member in ipairs(s.total > units and call('ZRANGEBYSCORE', key, textOf(score), textOf(score)) or {}) do
    local excess, weight = s.total - units, splice(key, s, member, at, shift, 4, true)
    if weight >= excess then
      splice(key, s, member, at, shift, 4, weight - excess)
      call('ZREM', key, member)
      call('ZADD', key, textOf(score), member:sub(1, 8) .. '\1')
      s.total = units
      break
    end
    splice(key, s, member, at, shift, 4, false)
    call('ZREM', key, member)
    s.total, removed = s.total - weight - 1, removed + 1
    if s.total <= units then break end
  end
  s.first = firstStamp(key, shift)
  return removed, s.total - entries + removed
end
