-- Decides takes of one limit by another algorithm than the sliding log, in the order of KEYS and in one step.
-- docs/internals.md, "Redis formats", describes KEYS, ARGV, the reply, and what a key holds.
-- include clock

local n, reply, r = #KEYS, {}, 0
local limits, deciding, shadow, used, resets = 1, 1, 0, {}, {}
local view, till, put
local quota, mode = ARGV[n + 3] + 0, ARGV[n + 2]
local first, upTo, algorithm = n + 4, mode == 'u', ARGV[n + 1]
-- include counter_of

for k = 1, n do
  local key, id = KEYS[k], ARGV[k]
  -- include ids
  local before = view(call('GET', key))
  local admitted, added = math.max(math.min(takes, math.floor((quota - before) / cost)), 0), 0
  if mode ~= 'p' and admitted > 0 then
    added = admitted * cost
    put(key, added)
  end
  -- include counter_told
  -- include whole_reply
end
return reply
