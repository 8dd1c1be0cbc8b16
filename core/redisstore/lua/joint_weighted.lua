-- Decides requests of any cost over several logs, of which some may have marks and weights, or are limits of other
-- algorithms than the sliding log. It is asked as joint.lua is, and replies the same. It has no short path.
-- include clock
-- include mark
-- include weights

local logs = ARGV[#ARGV] + 0 -- of each request
local requests = #KEYS / logs
local plain = tonumber(ARGV[requests + 2]) -- nil where ARGV has the long form
local reply, r, decideAll = {}, 0, nil -- r: the length of reply
-- include decide_all
-- include marked
-- include counter_joint

-- counterAt reads what is asked of a limit that is no sliding log, as planAt does.
local function counterAt(n)
  local algorithm, first, view, till, put = ARGV[n], n + 3, nil, nil, nil
  -- include counter_of
  local plan = {mode = ARGV[n + 1], limits = 1, deciding = 1, quotas = {ARGV[n + 2] + 0}, view = view, till = till,
    put = put, look = lookAtCounter, settle = settleCounter}
  plan.upTo = plan.mode == 'u'
  return plan, first + ({w = 1, c = 5, s = 1, t = 2})[algorithm]
end

readPlans(counterAt)
for q = 1, requests do
  local failed
  r, failed = decideAll(ARGV[q], (q - 1) * logs, r)
  if failed then return failed end
end
return reply
