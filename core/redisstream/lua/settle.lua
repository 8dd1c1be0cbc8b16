-- Removes takes that cost nothing any more, or merges entries of other logs. KEYS, ARGV and the reply are those of
-- settle.lua in package redisstore, but all costs are 1 or 0.
-- include clock
-- include stream
local window, ttl, reply = ARGV[#ARGV - 1] + 0, ARGV[#ARGV] + 0, {}
local asked, all, there = table.concat(ARGV, '', 1, #ARGV - 2), {}, {}

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

-- read reads a log to which entries are added.
local function read(key)
  all, there = call('XRANGE', key, '-', '+'), {}
  for i = 1, #all do there[all[i][2][2]:sub(1, 8)] = all[i] end
end

-- write writes it. It returns an error or nil.
local function write(key)
  for i, entry in ipairs(all) do entry[3] = i end
  table.sort(all, function(a, b)
    local first, second = instantOf(a), instantOf(b)
    return first < second or first == second and a[3] < b[3]
  end)
  for i, entry in ipairs(all) do entry[1] = entry[1]:sub(1, 17) .. i end
  rewrite(key, all)
  return all[1] and arm(key, ttl)
end

for k = 1, #KEYS do
  local key, id, _, cost, age = KEYS[k], struct.unpack('>c8I4I4i8', asked, 24 * k - 23)
  if window == 0 then
    if cost == 0 and age >= 0 then remove(key, id, now - age) end
  else
    if key ~= KEYS[k - 1] then read(key) end
    if there[id] then
      there[id][2][2] = id -- if it was a denial, it is none
    elseif age < window then
      there[id] = {text(now - age) .. '-' .. #all, {'i', id}}
      all[#all + 1] = there[id]
    end
    local failed = key ~= KEYS[k + 1] and write(key)
    if failed then return failed end
  end
  reply[k] = 1
end
return reply
