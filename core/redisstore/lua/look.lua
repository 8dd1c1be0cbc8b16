-- What a log holds before its takes.
-- Expects key, cost, the request. Provides the state of the log but for expired and uncounted.
local head = call('ZRANGE', key, '0', '0', 'WITHSCORES')
-- include mark_read
extra, oldest, extend = 0, head[2] and head[2] + 0, (varies or cost > 1 or upTo and takes > 1) and not mark
if weighted then
  entries = call('ZCOUNT', key, '1', '+inf')
  extra = (call('ZSCORE', key, 'sum') or 0) * 2 ^ 80
else
  entries = oldest and call('ZCARD', key) - (mark and 1 or 0) or 0
end
logKeep, logTtl = keep, ttl
if mark then
  extend = kept < keep
  oldest = entries > 0 and scoreAt(key, -entries)
  if not extend then logKeep, logTtl = kept, math.floor(kept / 1000) + 1000 end
end
units = entries + extra
logNow, logStamp, shift, future = now, stamp, 0, false
shifted = mark and not near or extend and not oldest
if shifted then
  shift, logNow = far, now + far
  logStamp = string.format('%.0f', logNow)
end
