-- Decides requests over several logs, one request after the other: all logs of a request record it, or none. All
-- requests have the same number of logs, with the same limits in the same order. docs/internals.md, "Redis formats",
-- describes KEYS, ARGV, the reply, and what a log holds.
--
-- A request for one unit is decided by the short path ask. All others, and those that it leaves undecided, go to the
-- function decideAll, which is made when it is first needed.
-- include clock
-- include mark

local logs = ARGV[#ARGV] + 0 -- of each request
local requests = #KEYS / logs
local plain = tonumber(ARGV[requests + 2]) -- nil where ARGV has the long form
local reply, r, id, base, replied = {}, 0, nil, 0, 0 -- r: the length of reply
local ask, cutOf, severalOf = nil, {}, {}
-- Of the log that decide looks at, set by plans.
local log, mode, upTo, ttl, limits, slots, deciding, varies, keepText, keep, largest, quotas, windows
local used, resets, offset
local asked, decide, decideAll, agree, before, failed -- set by plans, decide, decide_all and their parts
if plain then
  -- include ask
end

for q = 1, requests do
  id = ARGV[q]
  local said = plain and #id == 8 and ask(1, requests + 1, r, 1) or 0
  if said == 1 or said == -1 then
    r = replied
  elseif said ~= 0 then
    return said
  else
    if not decide then
      -- include plans
      -- include decide
      -- include decide_all
    end
    decideAll()
    if failed then return failed end
  end
  base = base + logs
end
return reply
