-- Decides takes on one key by the functions of counter_of, and writes the whole reply.
-- Expects key, id, mode, upTo, quota, view, till, put, used, resets, call. Provides reply and r.
-- include ids
local limits, deciding, shadow, added = 1, 1, 0, 0
local before, moved = view(call('GET', key))
local admitted = math.max(math.min(takes, math.floor((quota - before) / cost)), 0)
if mode ~= 'p' and (admitted > 0 or moved) then
  added = admitted * cost
  put(key, added)
end
local after = before + added
-- include counter_told
-- include whole_reply
