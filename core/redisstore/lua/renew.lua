-- Moves takes of permits to now, and adds those that the log does not have.
-- KEYS[1] the log. ARGV: its TTL (ms), then the ids. Reply: how many.
-- include clock
local members = {}
for i = 2, #ARGV do members[2 * i - 3], members[2 * i - 2] = stamp, ARGV[i] end
call('ZADD', KEYS[1], unpack(members))
return arm(KEYS[1], ARGV[1] + 0) or {#ARGV - 1}
