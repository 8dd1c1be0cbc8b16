-- Lists a part of what a window holds. docs/internals.md, "A log in a stream", describes what a log holds.
-- KEYS[1], ARGV and the reply are as in entries.lua of redisstore.
-- include clock
-- include stream
local key, size, upto = KEYS[1], ARGV[2] + 0, ARGV[4]
if call('XLEN', key) == 0 then return {0} end
if upto == '0' then upto = call('XREVRANGE', key, '+', '-', 'COUNT', '1')[1][1]:sub(1, 16) end
local from = string.format('%.0f', math.max(now - ARGV[1], ARGV[3] + 0) + 1)
local found = call('XRANGE', key, from, upto, 'COUNT', size)
local more = #found == size
if more then
  local id = found[size][1]
  for _, entry in ipairs(call('XRANGE', key, '(' .. id, id:sub(1, 16))) do found[#found + 1] = entry end
end
local reply = {more and upto + 0 or 0}
for i, entry in ipairs(found) do reply[2 * i], reply[2 * i + 1] = instantOf(entry), 1 end
return reply
