-- Asks about a request on the short path of requests of any cost.
-- Expects usual, id, and what cost.lua provides. Provides told: 1 or -1 if the path has replied, 0 if it does not
-- decide, or an error. Changes r and lastOf.
local told = usual and (#id <= 12 or #id == 9 + 4 * logs) and ask(1, 1) or 0
if told == 1 and plain then
  r = r + logs
elseif told == 1 or told == -1 then
  if plain then reply[r + 1] = 0 end -- not a short reply
  if logs > 1 then reply[r + whole] = told == 1 and 1 or 0 end
  r = r + whole + 4 * logs
elseif told ~= 0 then
  return told
else
  lastOf = {}
end
