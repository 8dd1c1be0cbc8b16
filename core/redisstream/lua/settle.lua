-- Removes takes that cost nothing any more, or merges entries of another log into KEYS[1]. KEYS, ARGV and the reply are
-- those of settle.lua in package redisstore, but all costs are 1 or 0.
-- include clock
-- include stream
local window, ttl, reply, all, there = ARGV[#KEYS + 1], ARGV[#KEYS + 2], {}, {}, {}

-- remove removes a take that was recorded at an instant, or up to two seconds before or after it.
local function remove(key, id, at)
  local from, last = text(at - 2000000), text(at + 2000000)
  repeat
    local page = call('XRANGE', key, from, last, 'COUNT', '1000')
    for i = 1, #page do
      if page[i][2][2]:sub(1, 8) == id then call('XDEL', key, page[i][1]) end
      from = '(' .. page[i][1]
    end
  until #page < 1000
end

for i, entry in ipairs(window and call('XRANGE', KEYS[1], '-', '+') or {}) do
  all[i] = entry
  there[entry[2][2]:sub(1, 8)] = entry
end
for k = 1, #KEYS do
  local id, _, cost = struct.unpack('>c8I4I4', ARGV[k])
  local age = #ARGV[k] > 16 and struct.unpack('>I8', ARGV[k], 17)
  if not window then
    if cost == 0 and age then remove(KEYS[k], id, now - age) end
  elseif there[id] then
    there[id][2][2] = id -- if it was a denial, it is none
  elseif age < window + 0 then
    there[id] = {text(now - age) .. '-' .. #all, {'i', id}}
    all[#all + 1] = there[id]
  end
  reply[k] = 1
end
if not all[1] then return reply end

for i, entry in ipairs(all) do entry[3] = i end
table.sort(all, function(a, b)
  local first, second = instantOf(a), instantOf(b)
  return first < second or first == second and a[3] < b[3]
end)
for i, entry in ipairs(all) do entry[1] = entry[1]:sub(1, 17) .. i end
rewrite(KEYS[1], all)
return arm(KEYS[1], ttl + 0) or reply
