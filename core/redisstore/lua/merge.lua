-- Adds entries of another log, unless they are there. docs/internals.md, "Redis formats", describes what a log holds.
-- KEYS[1] the log; ARGV: 1 keep (us), 2 its TTL (ms), 3 "v" where windows vary, else ""; then id, age (us) and units of
-- each entry. Reply: 1.
-- include clock
-- include mark
local key = KEYS[1]
local head = call('ZRANGE', key, '0', '0', 'WITHSCORES')
local mark, near, kept
-- include mark_read
local keep, ttl = ARGV[1] + 0, ARGV[2]
local extend = ARGV[3] == 'v'
if mark then
  extend = kept < keep
  if not extend then keep, ttl = kept, math.floor(kept / 1000) + 1000 end
  if not near then now = now + far end
end

local added = 0
for i = 4, #ARGV, 3 do
  local id, age, score = ARGV[i], ARGV[i + 1] + 0, string.format('%.0f', now - ARGV[i + 1])
  if age < keep and not call('ZSCORE', key, id .. '\0') and call('ZADD', key, 'NX', score, id) == 1 then
    added = added + 1
    for unit = 1, ARGV[i + 2] - 1 do
      call('ZADD', key, 'NX', score, id .. string.char(math.floor(unit / 256), unit % 256))
    end
  end
end
if added > 0 and extend then
  local window, entries, shifted = ARGV[1], call('ZCARD', key) - (mark and 1 or 0), mark and not near
  -- include mark_set
end
if added > 0 then call('PEXPIRE', key, ttl) end
return {1}
