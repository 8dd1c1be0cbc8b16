-- Expects the locals of decideAll, counters, agree and what pick changes. Provides the function count.
--
-- count decides as decide does, by the limit of the picked log, which is no sliding log. It does not know takes that
-- were executed before, but the sliding logs of the request do.
count = function(key, takes, cost)
  local view, till, put = unpack(counters[log])
  local quota = quotas[1]
  local before, moved = view(call('GET', key))
  local added = 0
  local admitted = math.max(math.min(takes, math.floor((quota - before) / cost)), 0)
  admitted = agree(admitted, 0, false)
  if mode ~= 'p' and admitted > earlier then added = (admitted - earlier) * cost end
  if added > 0 or moved and asked ~= 'p' then put(key, added) end
  local after = before + added
  if earlier > 0 then -- they were counted when they were executed before
    before = math.max(before - earlier * cost, 0)
    rooms[log] = math.max(math.min(takes, math.floor((quota - before) / cost)), 0)
  end
  -- include counter_told
  return nil, admitted, wait, 0
end
