-- What is asked of a limit that is no sliding log, in a request over several.
-- Expects n, where the arguments begin; algorithm, the first of them; j; now, call. Provides what plans.lua keeps of
-- it; counters[j]; n, where the arguments of the next log begin.
local view, till, put
local first = n + 3
-- include counter_of
counters[j] = {view, till, put}
mode, limits, slots, deciding, quotas, used, resets = ARGV[n + 1], 1, false, 1, {ARGV[n + 2] + 0}, {}, {}
upTo = mode == 'u'
n = first + ({w = 1, c = 5, s = 1, t = 2})[algorithm]
