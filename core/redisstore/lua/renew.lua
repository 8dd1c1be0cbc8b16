-- Moves takes that are still in use to now, and adds those that the log has lost. docs/internals.md, "Redis formats",
-- describes what a log holds.
-- KEYS[1] the log; ARGV: 1 the log's TTL (ms), then ids, which unpack has room for. Reply: how many.
-- include clock
-- include weights
local key, ttl, n = KEYS[1], ARGV[1] + 0, #ARGV - 1
local _, kept, scale, summary = readHead(call('ZRANGE', key, '0', '0', 'WITHSCORES'))
if kept then ttl = math.max(ttl, math.floor(kept / 1000) + 1000) end
if scale > 1 then stamp = textOf(scale * now) end
local renewed = {}
for i = 1, n do
  local id, weight = ARGV[i + 1], 0
  local score = summary and call('ZSCORE', key, id)
  if score then
    weight = weights().splice(key, summary, id, score / scale, scale, 4, false)
    summary.total = summary.total - weight - 1
  end
  if summary then
    call('ZADD', key, stamp, id)
    weights().put(key, summary, id, now, scale, weight)
  end
  renewed[2 * i - 1], renewed[2 * i] = stamp, id
end
call('ZADD', key, unpack(renewed))
call('PEXPIRE', key, ttl)
if summary then
  summary.first = weights().firstStamp(key, scale)
  weights().save(key, summary)
end
return {n}
