-- Decides takes on one key by the functions of counter_of.
-- Expects mode, upTo, quota, view, till, put, call, reply. Provides the function decide.

-- decide writes the whole reply behind reply[r], and returns where it ends.
decide = function(key, id, r)
  local takes, cost, ids, shadow
  -- include ids
  local added, before, moved, used, resets = 0, nil, nil, {}, {}
  before, moved = view(call('GET', key))
  local admitted = math.max(math.min(takes, math.floor((quota - before) / cost)), 0)
  if mode ~= 'p' and (admitted > 0 or moved) then
    added = admitted * cost
    put(key, added)
  end
  local after = before + added
  -- include counter_told
  -- include whole
  return r
end
