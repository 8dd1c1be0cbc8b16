-- Decides takes of one limit by another algorithm than the sliding log, in the order of KEYS and in one step.
-- docs/internals.md, "Redis formats", describes KEYS, ARGV, the reply, and what a key holds.
--
-- The common take, one unit to be charged to a fixed window or a token bucket, is decided without a function, as in
-- take.lua. All other takes, and those that the short paths leave undecided, go to the function decide, which is made
-- when it is first needed.
local call = redis.call
local time = call('TIME')
local now = time[1] * 1000000 + time[2]

local n, reply, r = #KEYS, {}, 0
local algorithm, mode, quota, first = ARGV[n + 1], ARGV[n + 2], ARGV[n + 3] + 0, n + 4
local short, upTo, decide = algorithm, mode == 'u', nil
-- include short_begin

for k = 1, n do
  local key, id, told = KEYS[k], ARGV[k], false -- told: whether a short path has replied
  if short == 'W' and #id == 8 then
    -- include short_window
  elseif short == 'T' and #id == 8 then
    -- include short_bucket
  end
  if told then
    r = r + 1
  else
    if not decide then
      local view, till, put
      -- include counter_of
      -- include counter_whole
    end
    if short == 'W' or short == 'T' then
      r = r + 1
      reply[r] = 0 -- not a short reply
    end
    r = decide(key, id, r)
  end
end
return reply
