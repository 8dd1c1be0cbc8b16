-- Removes a take that was recorded of late. docs/internals.md, "Redis formats", describes what a log holds.
-- KEYS[1] the log; ARGV: 1 the take's id, 2 its age at most (us). Reply: 0, or the take's age if it is older than that.
-- include clock
-- include weights
local key, id, settle = KEYS[1], ARGV[1], nil
-- include settle_units
local score = call('ZSCORE', key, id) -- a denial stays, since it has replaced older units
if not score then return {0} end
local _, _, scale = readHead(call('ZRANGE', key, '0', '0', 'WITHSCORES'))
local age = now - score / scale
if age > ARGV[2] + 0 then return {age} end
settle(key, id, 0)
return {0}
