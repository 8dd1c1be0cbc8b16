-- Changes what a take has cost. KEYS[1] the log; ARGV: 1 id, 2 units; see take.lua.
local key, id, want, call = KEYS[1], ARGV[1], ARGV[2] + 0, redis.call

local first = id
local stamp = call('ZSCORE', key, first)
if not stamp then
  first = id .. '\0'
  stamp = call('ZSCORE', key, first)
end
if not stamp then return {1} end

local function member(unit)
  return unit == 0 and first or id .. string.char(math.floor(unit / 256), unit % 256)
end

-- How many units there are: they are numbered, so half of the rest can be left out each time.
local have, beyond = 1, 2
while call('ZSCORE', key, member(beyond - 1)) do have, beyond = beyond, beyond * 2 end
while beyond - have > 1 do
  local middle = math.floor((have + beyond) / 2)
  if call('ZSCORE', key, member(middle - 1)) then have = middle else beyond = middle end
end

local batch, n = {}, 0
for unit = math.min(have, want), math.max(have, want) - 1 do
  if want > have then
    n = n + 1
    batch[n] = stamp
  end
  n = n + 1
  batch[n] = member(unit)
  if n >= 2000 then -- unpack has room for some thousands
    call(want > have and 'ZADD' or 'ZREM', key, unpack(batch, 1, n))
    n = 0
  end
end
if n > 0 then call(want > have and 'ZADD' or 'ZREM', key, unpack(batch, 1, n)) end

-- A log whose mark is "near:" changes its scores when it has become short.
local many = 2000
local size = want < have and call('ZCARD', key) or 0
if size > 0 and size <= many and size + have - want > many then
  local all = call('ZRANGE', key, '0', '-1', 'WITHSCORES')
  if all[2] == '0' and all[1]:sub(1, 5) == 'near:' then
    call('ZADD', key, '0', 'keep:' .. all[1]:sub(6))
    call('ZREM', key, all[1])
    batch, n = {}, 0
    for i = 3, #all, 2 do
      batch[n + 1], batch[n + 2], n = string.format('%.0f', all[i + 1] + 4000000000000000), all[i], n + 2
      if n == 2000 or i == #all - 1 then
        call('ZADD', key, 'XX', unpack(batch, 1, n))
        n = 0
      end
    end
  end
end
return {1}
