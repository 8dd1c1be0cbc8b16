-- Moves takes that are still in use to now, and adds those that the log has lost. docs/internals.md, "Redis formats",
-- describes what a log holds.
-- KEYS[1] the log; ARGV: 1 the log's TTL (ms), then ids, which unpack has room for. Reply: how many.
-- include clock
-- include mark
-- include marks
local key, ttl = KEYS[1], ARGV[1] + 0
local mark, near, _, kept = readMark(call('ZRANGE', key, '0', '0', 'WITHSCORES'))
if mark then
  ttl = math.max(ttl, math.floor(kept / 1000) + 1000)
  if not near then stamp = string.format('%.0f', now + far) end
end
local renewed, n = {}, #ARGV - 1
for i = 1, n do renewed[2 * i - 1], renewed[2 * i] = stamp, ARGV[i + 1] end
call('ZADD', key, unpack(renewed))
call('PEXPIRE', key, ttl)
return {n}
