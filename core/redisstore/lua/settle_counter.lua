-- Changes what a take has cost in a counter, once.
-- KEYS[1] the counter; KEYS[2] the witness, which keeps for a minute what the take costs: longer than a command may be
-- sent again. ARGV: letter, quota, window and the fourth argument of list.lua; what the take has cost, and what it
-- costs from now on; its period, and the nanoseconds of this. Reply: 1.
-- include clock
-- include counters
local counter = newCounters()[ARGV[1]:lower()](ARGV[2] + 0, ARGV[3] + 0, ARGV[4])
local was, cost = call('GET', KEYS[2]) or ARGV[5], ARGV[6]
if was == cost then return {1} end
counter.look(KEYS[1])
if counter.settle(KEYS[1], cost - was, ARGV[7] + 0, ARGV[8] + 0, was + 0) then
  call('SET', KEYS[2], cost, 'PX', '60000')
end
return {1}
