-- What follows when units were added to a log: its TTL, and the end of its oldest units.
-- Expects key, and what decide.lua declares. Changes the state of the log.
local armed = redis.pcall('PEXPIRE', key, logTtl)
if type(armed) == 'table' and armed.err then
  if units == 0 then call('UNLINK', key) end -- without a TTL the entry would never leave
  return armed
end
local removed = 0
entries = entries + (upTo and 1 or new / cost)
future = future or oldest and oldest > logNow
if expired then
  local opens, most = logNow - logKeep, 2 * many -- the next takes remove the rest
  if extra > 0 then
    if entries > most then opens = math.min(opens, scoreAt(key, most - entries - 1)) end
    removed, extra = weightSearch().drop(key, opens, shift, extra)
  elseif entries > most and scoreAt(key, most - entries) <= opens then
    removed = call('ZREMRANGEBYRANK', key, -entries, most - entries - 1)
  else
    removed = call('ZREMRANGEBYSCORE', key, '1', opens)
  end
  entries, oldest = entries - removed, nil
  if uncounted then used[1] = entries + extra - new end
end
local bound = mode == 'r' and math.max(largest, 100000) or largest
if (mode == 'r' or admitted == 0) and entries + extra > bound then
  if extra > 0 then
    removed, extra = weightSearch().dropToUnits(key, bound, entries, shift, extra)
  else
    removed = call('ZREMRANGEBYRANK', key, -entries, -bound - 1)
  end
  entries, oldest = entries - removed, nil
end
units = entries + extra
