-- What a log holds before its takes.
-- Expects key, the request. Provides the state of the log but for expired and uncounted.
units = call('ZCARD', key)
local head = units > 0 and call('ZRANGE', key, '0', '0', 'WITHSCORES') or {}
-- include mark_read
first, oldest = 0, units > 0 and head[2] + 0
logKeep, logTtl, extend = keep, ttl, varies and not mark
if mark then
  units, first, extend = units - 1, 1, kept < keep
  oldest = units > 0 and scoreAt(key, '1')
  if not extend then logKeep, logTtl = kept, math.floor(kept / 1000) + 1000 end
end
logNow, logStamp, future = now, stamp, false
shifted = mark and not near or varies and units == 0
if shifted then
  logNow = now + far
  logStamp = string.format('%.0f', logNow)
end
