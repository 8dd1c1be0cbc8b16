-- Removes a take. docs/internals.md, "A log in a stream", describes what a log holds.
-- KEYS[1] the log; ARGV[1] the take's id. Reply: 1.
local key, id, call = KEYS[1], ARGV[1], redis.call
local last, count = '+', 8 -- most takes that are removed are among the newest
repeat
  local found = call('XREVRANGE', key, last, '-', 'COUNT', count)
  for i = 1, #found do
    local value = found[i][2][2]
    if value == id or value == id .. '\0' then
      call('XDEL', key, found[i][1])
      return {1}
    end
  end
  local all = #found < count
  last, count = not all and '(' .. found[#found][1], math.min(2 * count, 1000)
until all
return {1}
