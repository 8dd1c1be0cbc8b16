-- Adds entries of another log, unless they are there. docs/internals.md, "Redis formats", describes what a log holds.
-- KEYS[1] the log; ARGV: 1 keep (us), 2 its TTL (ms), 3 "v" where windows vary, else ""; then id, age (us) and units of
-- each entry. Reply: 1.
-- include clock
-- include mark
-- include marks
-- include weights
local key = KEYS[1]
local mark, near, weighted, kept = readMark(call('ZRANGE', key, '0', '0', 'WITHSCORES'))
local keep, ttl, shift, all = ARGV[1] + 0, ARGV[2], 0, 0
local extend = ARGV[3] == 'v'
if mark then
  extend = kept < keep
  if not extend then keep, ttl = kept, math.floor(kept / 1000) + 1000 end
  if not near then shift = far end
  if weighted then all = (call('ZSCORE', key, 'sum') or 0) * 2 ^ 80 end
end

-- isThere reports whether the log has an entry of a take: admitted, denied, or trimmed in part.
local function isThere(id)
  return call('ZSCORE', key, id) or call('ZSCORE', key, id .. '\0') or call('ZSCORE', key, id .. '\1')
end

local added, weighs = 0, false
for i = 4, #ARGV, 3 do
  local id, age, weight = ARGV[i], ARGV[i + 1] + 0, ARGV[i + 2] - 1
  if age < keep and not isThere(id) then
    call('ZADD', key, string.format('%.0f', now - age + shift), id)
    added = added + 1
    if weight > 0 then
      weighs, all = true, all + weight
      weightChanges().addWeight(key, id, now - age, weight, all)
    end
  end
end
if added > 0 and (extend or weighs and not weighted) then
  local window = (extend or not mark) and ARGV[1] or string.format('%.0f', kept)
  local entries, shifted = call('ZCOUNT', key, '1', '+inf'), shift > 0
  setMark(key, mark, window, weighted or weighs, entries, shifted)
end
if added > 0 then call('PEXPIRE', key, ttl) end
return {1}
