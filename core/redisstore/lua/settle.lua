-- Changes what a take has cost. docs/internals.md, "Redis formats", describes what a log holds.
-- KEYS[1] the log; ARGV: 1 the take's id, 2 its units from now on. Reply: 1.
-- include clock
-- include mark
local key, id, want = KEYS[1], ARGV[1], ARGV[2] + 0
-- include weights
-- include find
if stamp then
  -- include settle_units
end
return {1}
