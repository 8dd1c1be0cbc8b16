-- Decides requests of any cost over several logs, of which some may have marks and weights, or are limits of other
-- algorithms than the sliding log. It is asked as joint.lua is, and replies the same. It has no short path.
-- include clock
-- include mark
-- include weights

local logs = ARGV[#ARGV] + 0 -- of each request
local requests = #KEYS / logs
local peek, varies = ARGV[requests + 2] == 'P', false
local plain = peek and 0 or tonumber(ARGV[requests + 2]) -- nil where ARGV has the long form
local reply, r, decideAll, failed = {}, 0, nil, nil -- r: the length of reply
-- include state
local function make()
  -- include marked
  -- include decide_all
  -- include counter_joint

  -- counterAt reads what is asked of a limit that is no sliding log, which begins at ARGV[n]. It returns a table of it,
  -- and where the arguments of the next log begin.
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
for q = 1, requests do
  r, failed = decideAll(ARGV[q], (q - 1) * logs, r)
  if failed then return failed end
end
return reply
