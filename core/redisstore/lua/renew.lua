-- Moves takes that are still in use to now. docs/internals.md, "Redis formats", describes what a log holds.
-- KEYS[1] the log; ARGV: 1 the lease (us), 2 the log's TTL (ms), then ids. Takes that are at least a lease old, or not
-- in the log, stay as they are. Reply: how many were renewed.
-- include clock
-- include mark
local key, lease, ttl = KEYS[1], ARGV[1] + 0, ARGV[2] + 0
local head = call('ZRANGE', key, '0', '0', 'WITHSCORES')
local mark, near, weighted, kept
-- include mark_read
if mark then
  ttl = math.max(ttl, math.floor(kept / 1000) + 1000)
  if not near then now = now + far end
end
local score, batch, b, renewed = string.format('%.0f', now), {}, 0, 0
for i = 3, #ARGV do
  local since = call('ZSCORE', key, ARGV[i])
  if since and now - since < lease then
    renewed = renewed + 1
    if now > since + 0 then batch[b + 1], batch[b + 2], b = score, ARGV[i], b + 2 end
  end
  if b >= 2000 or b > 0 and i == #ARGV then -- unpack has room for some thousands
    call('ZADD', key, 'XX', unpack(batch, 1, b))
    b = 0
  end
end
if renewed > 0 then call('PEXPIRE', key, ttl) end
return {renewed}
