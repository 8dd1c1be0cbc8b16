-- Decides about the takes of one key in all cases that the short paths leave undecided.
-- Expects n, limits, plain, reply, call, now, stamp, far, many. Provides steps and the function decide.
-- include takes
-- include plan
-- include whole
-- include units
-- include log
local plan = planAt(n + 1, limits)

-- decide writes the whole reply behind reply[r], and returns where it ends, and an error or nil.
decide = function(key, id, r)
  local log = steps.newLog(key, plan, takesOf(id, plan.upTo))
  if plain then
    r = r + 1
    reply[r] = 0 -- not a short reply
  end
  steps.look(log)
  if log.marked then
    reply[r + 1] = -1 -- for take_weighted
    for i = r + 2, #reply do reply[i] = nil end -- of a short path
    return r + 1
  end
  steps.count(log)
  local failed = steps.settle(log)
  return writeWhole(r, log, log.admitted, log.wait), failed
end
