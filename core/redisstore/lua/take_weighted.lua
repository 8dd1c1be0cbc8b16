-- Decides takes of one policy and any cost against all logs, those with marks and weights included. It is asked as
-- take.lua is, and replies the same. Its only short path is cost.
-- include clock
-- include mark
-- include weights

local n = #KEYS
local text, reply, r = ARGV[n + 1], {}, 0 -- r: the length of reply
local varies = text:byte() == 86 -- in the short form, which then begins with "V"
local ttl = varies and text:sub(2) or text
local peek = ttl == 'P'
local plain = peek and 0 or tonumber(ttl) -- nil where ARGV has the long form
local limits, decide, failed = (#ARGV - n - (plain and 1 or 5)) / 2, nil, nil

for k = 1, n do
  local key, id, told = KEYS[k], ARGV[k], false -- told: whether a short path has replied
  if limits == 1 and #id <= 12 and not peek then
    -- include cost
  end
  if not told then
    if not decide then
      -- include state
      local function make()
        -- include marked
        -- include decide
      end
      make()
    end
    r, failed = decide(key, id, r)
    if failed then return failed end
  end
end
return reply
