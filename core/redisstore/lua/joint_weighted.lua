-- Decides requests of any cost over several logs, of which some may have marks and weights, or are limits of other
-- algorithms than the sliding log. It is asked as joint.lua is, and replies the same.
-- include clock
-- include weights

local logs = ARGV[#ARGV] + 0 -- of each request
local requests = #KEYS / logs
local peek, varies = ARGV[requests + 2] == 'P', false
local plain = peek and 0 or tonumber(ARGV[requests + 2]) -- nil where ARGV has the long form
local reply, r, id, base, ask, lastOf, decideAll, failed = {}, 0, nil, 0, nil, nil, nil, nil -- r: the length of reply
local usual, whole, size = not peek, plain and 2 or 1, plain and 4 or 8 -- size: arguments of a log of one limit
for n = requests + 1, requests + logs * size, size do
  usual = usual and ARGV[n] == '1' and (plain or
    ARGV[n + 1] == 'c' and ARGV[n + 2] == ARGV[n + 7] and ARGV[n + 4] == '1')
end
if usual then
  local quotas, windows, ttls = {}, {}, {}
  for j = 1, logs do
    local n = requests + j * size -- the last argument of the log
    quotas[j], windows[j], ttls[j] = ARGV[n - 1] + 0, ARGV[n] + 0, ARGV[plain and n - 2 or n - 4]
  end
  -- include cost
end

for q = 1, requests do
  id, base = ARGV[q], logs * (q - 1)
  -- include cost_asked
  if told == 0 then
    if not decideAll then
      -- include state
      local function make()
        -- include marked
        -- include decide_all
        -- include counter_joint

        -- counterAt reads what begins at ARGV[n]. It returns a table of it, and where the next log's arguments begin.
        local function counterAt(n)
          local algorithm, first, view, till, put = ARGV[n], n + 3, nil, nil, nil
          asked, upTo = ARGV[n + 1], ARGV[n + 1] == 'u'
          -- include counter_of
          local counter = {quota = ARGV[n + 2] + 0, view = view, till = till, put = put}
          counter[11], counter[12] = {0}, {0} -- as of a log: used and resets
          return counter, first + ({w = 1, c = 5, s = 1, t = 2})[algorithm]
        end

        readLogs(counterAt)
      end
      make()
    end
    r, failed = decideAll(id, base, r)
    if failed then return failed end
  end
end
return reply
