-- Decides takes of one policy and any cost against all logs, those with marks and weights included. It is asked as
-- take.lua is, and replies the same. Its only short path is cost, for takes of one limit, also where the arguments have
-- the long form, as for a long window.
-- include clock
-- include mark
-- include weights

local n, logs = #KEYS, 1
local text, reply, r = ARGV[n + 1], {}, 0 -- r: the length of reply
local varies = text:byte() == 86 -- in the short form, which then begins with "V"
local ttl = varies and text:sub(2) or text
local peek = ttl == 'P'
local plain = peek and 0 or tonumber(ttl) -- nil where ARGV has the long form
local limits, whole = (#ARGV - n - (plain and 1 or 5)) / 2, plain and 1 or 0
local usual = limits == 1 and not peek and (plain or text == 'c' and ARGV[n + 2] == ARGV[n + 7] and ARGV[n + 4] == '1')
local id, base, ask, decide, failed = nil, 0, nil, nil, nil
if usual then
  local quotas, windows, ttls = {ARGV[n + (plain and 2 or 6)] + 0}, {ARGV[#ARGV] + 0}, {plain or ARGV[n + 3]}
  -- include cost
end

for k = 1, n do
  id, base = ARGV[k], k - 1
  -- include cost_asked
  if told == 0 then
    if not decide then
      -- include state
      local function make()
        -- include marked
        -- include decide
      end
      make()
    end
    r, failed = decide(KEYS[k], id, r)
    if failed then return failed end
  end
end
return reply
