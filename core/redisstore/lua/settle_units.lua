-- Changes how many units a take has in a log.
-- Expects key, id, call; first, the member of its first unit; stamp, its score; want, its units from now on; far, many.
local function member(unit)
  return unit == 0 and first or id .. string.char(math.floor(unit / 256), unit % 256)
end

-- The units are numbered, so a search by halves finds how many there are.
local have, beyond = 1, 2
while call('ZSCORE', key, member(beyond - 1)) do have, beyond = beyond, beyond * 2 end
while beyond - have > 1 do
  local middle = math.floor((have + beyond) / 2)
  if call('ZSCORE', key, member(middle - 1)) then have = middle else beyond = middle end
end

local command, batch, b = want > have and 'ZADD' or 'ZREM', {}, 0
for unit = math.min(have, want), math.max(have, want) - 1 do
  if want > have then
    b = b + 1
    batch[b] = stamp
  end
  b = b + 1
  batch[b] = member(unit)
  if b >= 2000 then -- unpack has room for some thousands
    call(command, key, unpack(batch, 1, b))
    b = 0
  end
end
if b > 0 then call(command, key, unpack(batch, 1, b)) end

-- A log whose mark is "near:" changes its scores when it has become short.
local size = want < have and call('ZCARD', key) or 0 -- with the mark, if there is one
local shorter = size > 0 and size <= many and size + have - want > many
local head = shorter and call('ZRANGE', key, '0', '0', 'WITHSCORES') or {}
local mark, near, kept
-- include mark_read
if near then
  local window, entries, shifted = mark:sub(6), size - 1, false
  -- include mark_set
end
