-- Keeps an override of a policy, or removes it. docs/internals.md, "Overrides", describes what the hash holds.
-- KEYS[1] the hash; ARGV: the next version, the name, the value (empty to remove it), its end and the present instant
-- by the caller's clock (ms), how many there may be, "e" to leave one alone that does not end before. Reply: 1, or 0 if
-- there are too many.
local key, name, value, ends, now, most = KEYS[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6] + 0
local function endOf(field) return field:match('^%d+') + 0 end
local old = redis.call('HGET', key, name)
if value == '' then
  if old then
    redis.call('HDEL', key, name)
    redis.call('HSET', key, '', ARGV[1])
  end
  return {1}
end
if old and ARGV[7] == 'e' and endOf(old) >= ends + 0 then return {1} end
if not old and redis.call('HLEN', key) > most then -- one field is the version
  local all = redis.call('HGETALL', key)
  for i = 1, #all, 2 do
    if all[i] ~= '' and endOf(all[i + 1]) <= now + 0 then redis.call('HDEL', key, all[i]) end
  end
  if redis.call('HLEN', key) > most then return {0} end
end
local left, last = ends - now, redis.call('HGET', key, '') and redis.call('PTTL', key) or 0
redis.call('HSET', key, '', ARGV[1], name, ends .. ' ' .. value)
if left > last then redis.call('PEXPIRE', key, string.format('%.0f', left)) end
return {1}
