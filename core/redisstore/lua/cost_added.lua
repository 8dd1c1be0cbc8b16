-- What follows when an entry was added to a log with weights: its weight, the TTL, and the end of its expired entries.
-- Expects key, id, entry, cost, window, ttl, plain, and what cost_look.lua provides. Changes held and left.
local weight, expired, ttl = cost - 1, 0, plain and ttl or ARGV[n + 3]
if entries * 1000000 <= window or call('PTTL', key) < ttl - 900 then call('PEXPIRE', key, ttl) end
local size = entries < 200 and 16 or entries < 500 and 32 or 64 -- of blocks; addWeight decides
if id:byte(8) % size > 0 and not (opened and call('ZCOUNT', key, '0.025', opened * 2 ^ -57) > 0) then
  sum = sum - gone
  local score = (sum + weight) * 2 ^ -80
  if weight > 0 then
    call('ZADD', key, score, 'sum', (now + far) * 2 ^ -53, entry .. struct.pack('>I4', weight))
  elseif gone > 0 then
    call('ZADD', key, score, 'sum')
  end
  if gone > 0 then call('ZREMRANGEBYSCORE', key, '0.4', opened * 2 ^ -53) end
  expired = opened and call('ZREMRANGEBYSCORE', key, '1', opened) or 0
else -- a block may begin or end
  sum = sum + weight
  if weight > 0 then weightChanges().addWeight(key, entry, now, weight, sum) end
  if opened then expired, sum = weightChanges().drop(key, opened, far, sum) end
  sum = sum - weight
end
held = entries - expired + sum
if opened then
  if expired ~= 1 then oldest[4] = call('ZRANGEBYSCORE', key, '1', '+inf', 'WITHSCORES', 'LIMIT', '0', '1')[2] end
  left = held > 0 and math.min(oldest[4] - far - now + window, window) or window
end
