-- Decides requests for one unit over several sliding logs of one limit each, in turn: all logs of a request record
-- it, or none. All requests have the same number of logs, with the same limits in the same order. docs/internals.md,
-- "Redis formats", describes KEYS, ARGV, the reply, and what a log holds. Of a request with a log that has a mark it
-- only tells so, and of those after it, which may have logs of that request and are to be decided later.
--
-- The short path ask decides most requests. Those that it leaves undecided go to the function decideAll, which is made
-- when it is first needed.
-- include clock

local logs = ARGV[#ARGV] + 0 -- of each request
local requests = #KEYS / logs
local peek, varies = ARGV[requests + 2] == 'P', false
local plain = peek and 0 or tonumber(ARGV[requests + 2]) -- nil where ARGV has the long form
local reply, r, id, base, replied = {}, 0, nil, 0, 0 -- r: the length of reply
local ask, cutOf, decideAll, again, failed = nil, {}, nil, false
if plain then
  -- include ask
end

for q = 1, requests do
  id = ARGV[q]
  local said = plain and not again and #id == 8 and ask(1, requests + 1, r, 1) or 0
  if said == 1 or said == -1 then
    r = replied
  elseif said ~= 0 then
    return said
  else
    if not decideAll then
      -- include state
      local function make()
        -- include unmarked
        -- include decide_all
        readLogs()
      end
      make()
    end
    r, failed, again = decideAll(id, base, r, again)
    if failed then return failed end
  end
  base = base + logs
end
return reply
