-- Decides requests for one unit over several sliding logs of which some have several limits, as joint.lua does those
-- of one limit each.
-- include clock

local logs = ARGV[#ARGV] + 0 -- of each request
local requests = #KEYS / logs
local peek, varies = ARGV[requests + 2] == 'P', false
local plain = peek and 0 or tonumber(ARGV[requests + 2]) -- nil where ARGV has the long form
local reply, r, id, base, replied = {}, 0, nil, 0, 0 -- r: the length of reply
local ask, decideAll, again, failed = nil, nil, false
if plain then
  -- include ask_several
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
