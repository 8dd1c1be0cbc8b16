-- Limits of other algorithms than the sliding log, in a request over several.
-- Expects call, and what decide_all.lua provides. Provides lookAtCounter and settleCounter, which do for such a limit
-- what look, record and finish do for a log. They do not know takes that were executed before, but the sliding logs of
-- the request do.
lookAtCounter = function(counter)
  counter.before, counter.moved = counter.view(call('GET', key))
  admitted = math.max(math.min(takes, math.floor((counter.quota - counter.before) / cost)), 0)
  counter.admitted = admitted
end

settleCounter = function(counter)
  admitted = counter.admitted
  share()
  local before, added, till, quota = counter.before, 0, counter.till, counter.quota
  if mode ~= 'p' and admitted > earlier then added = (admitted - earlier) * cost end
  if added > 0 or counter.moved and asked ~= 'p' then counter.put(key, added) end
  local after = before + added
  if earlier > 0 then -- they were counted when they were executed before
    before = math.max(before - earlier * cost, 0)
    room = math.max(math.min(takes, math.floor((quota - before) / cost)), 0)
  end
  -- include counter_told
  return wait
end
