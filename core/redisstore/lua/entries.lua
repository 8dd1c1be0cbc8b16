-- Lists a part of a log, oldest first.
-- KEYS[1] the log. ARGV: its window (us); the instant of the last entry of the part before, or 0, and how many entries
-- of that instant it has; how many entries to list. Reply: the instant and the units of each entry. There are no others
-- if these are fewer.
-- include clock
-- include log
local from, log = math.max(now - ARGV[1] + 1, ARGV[2] + 0), newLog()
local skip = from == ARGV[2] + 0 and ARGV[3] or '0'
local found = call('ZRANGE', KEYS[1], text(from), '+inf', 'BYSCORE', 'LIMIT', skip, ARGV[4], 'WITHSCORES')
local reply = {}
for i = 1, #found, 2 do reply[i], reply[i + 1] = found[i + 1] + 0, log.costOf(found[i]) end
return reply
