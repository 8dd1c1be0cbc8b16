-- Adds entries of another log, unless they are there. docs/internals.md, "Redis formats", describes what a log holds.
-- KEYS[1] the log; ARGV: 1 keep (us), 2 its TTL (ms), 3 "v" where windows vary, else ""; then id, age (us) and units of
-- each entry. Reply: 1.
-- include clock
-- include weights
local key = KEYS[1]
local mark, kept, scale, summary = readHead(call('ZRANGE', key, '0', '0', 'WITHSCORES'))
local keep, ttl, extend = ARGV[1] + 0, ARGV[2], ARGV[3] == 'v'
if kept then
  extend = kept < keep
  if not extend then keep, ttl = kept, math.floor(kept / 1000) + 1000 end
end

-- isThere reports whether the log has an entry of a take: admitted, denied, or trimmed in part.
local function isThere(id)
  return call('ZSCORE', key, id) or call('ZSCORE', key, id .. '\0') or call('ZSCORE', key, id .. '\1')
end

local added = 0
for i = 4, #ARGV, 3 do
  local id, age, weight = ARGV[i], ARGV[i + 1] + 0, ARGV[i + 2] - 1
  if age < keep and not isThere(id) then
    if weight > 0 and not summary then summary = weights().begin(key, mark, keep, scale) end
    call('ZADD', key, textOf(scale * (now - age)), id)
    if summary then weights().put(key, summary, id, now - age, scale, weight) end
    added = added + 1
  end
end
if added > 0 then
  if summary then
    summary.window, summary.lag = keep, math.max(summary.newest - now, 0)
    weights().save(key, summary)
  elseif extend then
    weights().setMark(key, mark, ARGV[1], call('ZCOUNT', key, '1', '+inf'), scale > 1)
  end
  if call('PTTL', key) < ttl + 0 then call('PEXPIRE', key, ttl) end
end
return {1}
