-- Adds entries of another log, and gives those that this one has already their cost.
-- KEYS[1] the log. ARGV: its window (us) and TTL (ms); then, for each entry, the id of a take, what it may have cost
-- here and what it costs, in 4 bytes each, and how long ago it was recorded (us), in 8 bytes. Reply: how many.
-- include log
-- include change
local key, window = KEYS[1], ARGV[1] + 0
for i = 3, #ARGV do
  local id, sent, cost, age = struct.unpack('>c8I4I4I8', ARGV[i])
  local member, at = find(key, id, sent, cost)
  if member then
    change(key, member, at, id, cost)
  elseif cost > 0 and age < window then
    add(key, text(now - age), id, cost)
  end
end
local failed = arm(key, ARGV[2] + 0)
if failed and failed ~= 0 then return failed end -- 0: there is no log
return {#ARGV - 2}
