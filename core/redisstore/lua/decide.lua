-- Decides about the takes of one key in all cases that the short paths leave undecided.
-- Expects n, limits, plain, reply, call, now, stamp, many, and what state.lua and unmarked.lua or marked.lua provide.
-- Sets the function decide.
-- include log
-- include plan

-- decide writes the whole reply behind reply[r], and returns where it ends, and an error or nil.
decide = function(logKey, id, r)
  -- include ids
  key, future = logKey, false
  if at then own, denied, at = 0, false, false end -- of another key
  if plain then
    r = r + 1
    reply[r] = 0 -- not a short reply
  end
  if not look() then
    reply[r + 1] = -1 -- for take_weighted
    for i = r + 2, #reply do reply[i] = nil end -- of a short path
    return r + 1
  end
  local wait, shadow, failed = finish(record())
  -- include whole
  return r, failed
end
