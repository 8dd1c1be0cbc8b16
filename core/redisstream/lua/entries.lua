-- Lists a part of a log, oldest first. KEYS, ARGV and the reply are those of entries.lua in package redisstore.
-- include clock
-- include stream
local from, skip = math.max(now - ARGV[1] + 1, ARGV[2] + 0), ARGV[3] + 0
if from > ARGV[2] + 0 then skip = 0 end
local found, reply = call('XRANGE', KEYS[1], text(from), '+', 'COUNT', skip + ARGV[4]), {}
for i = skip + 1, #found do reply[#reply + 1], reply[#reply + 2] = instantOf(found[i]), 1 end
return reply
