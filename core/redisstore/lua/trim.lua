-- What follows when units were added to a log: its TTL, and the end of its oldest units.
-- Expects key, and what decide.lua declares. Changes the state of the log.
local armed = redis.pcall('PEXPIRE', key, logTtl)
if type(armed) == 'table' and armed.err then
  if units == 0 then call('UNLINK', key) end -- without a TTL the entry would never leave
  return armed
end
units = units + new
future = future or oldest and oldest > logNow
if expired then
  local opens = logNow - logKeep
  if units > 2 * many and scoreAt(key, first + 2 * many) <= opens then -- the next takes remove the rest
    units = units - call('ZREMRANGEBYRANK', key, first, first + 2 * many - 1)
  else
    units = units - call('ZREMRANGEBYSCORE', key, '1', opens)
  end
  oldest = nil
  if uncounted then used[1] = units - new end
end
local bound = mode == 'r' and math.max(largest, 100000) or largest
if (mode == 'r' or admitted == 0) and units > bound then
  call('ZREMRANGEBYRANK', key, first, first + units - bound - 1)
  units, oldest = bound, nil
end
