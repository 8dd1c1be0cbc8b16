-- Changes what takes have cost, each at its instant.
-- KEYS: the logs. ARGV: for each log the id of a take, what it has cost and what it costs from now on (0: nothing), in
-- 4 bytes each; then, in 8 bytes, how long ago it was sent (us), if the log is to be searched for another cost.
-- Reply: for each log 1 if it had the take, and 0 otherwise.
-- include log
-- include change
local reply = {}
for k = 1, #KEYS do
  local key, asked = KEYS[k], ARGV[k]
  local id, was, cost = struct.unpack('>c8I4I4', asked)
  local member, at = find(key, id, was, cost)
  if not member and #asked > 16 then member, at = search(key, id, now - struct.unpack('>I8', asked, 17)) end
  if member then change(key, member, at, id, cost) end
  reply[k] = member and 1 or 0
end
return reply
