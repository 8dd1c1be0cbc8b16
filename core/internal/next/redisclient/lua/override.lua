-- Keeps an override of a policy, or removes it. docs/internals.md, "Overrides", describes what the hash holds.
-- KEYS[1] the hash; ARGV: the next version, the name, the value (empty to remove it), its end and the present instant
-- by the caller's clock (ms), how many of its kind there may be, "e" for a pause, which leaves one alone that does not
-- end before. Reply: 1, or 0 if there are too many.
local key, name, value, ends, now, most, kind = KEYS[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6] + 0, ARGV[7]
local function endOf(field) return field:match('^%d+') + 0 end
local function pausesIn(field) return field and field:find('^%d+e') and 1 or 0 end
local old, version = redis.call('HGET', key, name), redis.call('HGET', key, '')
local pauses = (version and version:match('%d+$') or 0) + 0
if value == '' then
  if old then
    redis.call('HDEL', key, name)
    redis.call('HSET', key, '', ARGV[1] .. ' ' .. pauses - pausesIn(old))
  end
  return {1}
end
if old and kind == 'e' and endOf(old) >= ends + 0 then return {1} end
local function count() -- of its kind
  return kind == 'e' and pauses or redis.call('HLEN', key) - 1 - pauses
end
if not old and count() >= most then
  local all, before = redis.call('HGETALL', key), pauses
  for i = 1, #all, 2 do
    if all[i] ~= '' and endOf(all[i + 1]) <= now + 0 then
      redis.call('HDEL', key, all[i])
      pauses = pauses - pausesIn(all[i + 1])
    end
  end
  if count() >= most then
    if pauses < before then redis.call('HSET', key, '', ARGV[1] .. ' ' .. pauses) end
    return {0}
  end
end
local field = ends .. kind .. ' ' .. value
pauses = pauses + pausesIn(field) - pausesIn(old)
local left, last = ends - now, version and redis.call('PTTL', key) or 0
redis.call('HSET', key, '', ARGV[1] .. ' ' .. pauses, name, field)
if left > last then redis.call('PEXPIRE', key, string.format('%.0f', left)) end
return {1}
