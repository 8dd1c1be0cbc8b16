-- Changes what takes have cost, each in its log. docs/internals.md, "Redis formats", describes what a log holds.
-- KEYS the logs; ARGV the id of each take and, in 4 bytes, its units from now on. Reply: 1 for each.
-- include clock
-- include weights
local settle
-- include settle_units

local reply = {}
for k = 1, #KEYS do
  settle(KEYS[k], struct.unpack('>c8I4', ARGV[k]))
  reply[k] = 1
end
return reply
