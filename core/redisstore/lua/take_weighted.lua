-- Decides takes of one policy and any cost against all logs, those with marks and weights included. It is asked as
-- take.lua is, and replies the same. Its only short path is cost, for takes of one limit, also where the arguments have
-- the long form, as for a long window.
-- include clock
-- include weights
-- include weighted
if usual then
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
