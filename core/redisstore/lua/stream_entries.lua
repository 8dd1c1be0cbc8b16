-- Lists what a window holds. docs/internals.md, "A log in a stream", describes what a log holds.
-- KEYS[1] the log; ARGV[1] the window (us). Reply: instant (us) and units of each take, oldest first.
-- include clock
-- include stream
local _, failed = sizeOf(KEYS[1])
if failed then return failed end
local reply = {}
for i, entry in ipairs(call('XRANGE', KEYS[1], string.format('%.0f', now - ARGV[1] + 1), '+')) do
  reply[2 * i - 1], reply[2 * i] = instantOf(entry), 1
end
return reply
