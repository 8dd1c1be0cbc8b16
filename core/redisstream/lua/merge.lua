-- Adds entries of another log, unless they are there. docs/internals.md, "A log in a stream", describes what a log
-- holds.
-- KEYS[1] the log; ARGV: 1 keep (us), 2 its TTL (ms), 3 an empty text; then id, age (us) and 1 of each entry. Reply: 1.
-- include clock
-- include stream
local key, keep, there, all = KEYS[1], ARGV[1] + 0, {}, {}
local size = call('XLEN', key)
for i, entry in ipairs(size > 0 and call('XRANGE', key, '-', '+') or {}) do
  all[i] = {instantOf(entry), entry[2][2]}
  there[all[i][2]:sub(1, 8)] = true -- admitted or denied
end
for i = 4, #ARGV, 3 do
  local id, age = ARGV[i], ARGV[i + 1] + 0
  if age < keep and not there[id] then
    there[id] = true
    all[#all + 1] = {now - age, id}
  end
end
if #all == size then return {1} end
table.sort(all, function(a, b) return a[1] < b[1] or a[1] == b[1] and a[2] < b[2] end)
local entries = {}
for i, entry in ipairs(all) do entries[2 * i - 1], entries[2 * i] = entry[1], entry[2] end
local _, refused = rebuilding().rewrite(key, entries)
if refused then return refused end
local armed = call('PTTL', key) >= ARGV[2] + 0 and 1 or redis.pcall('PEXPIRE', key, ARGV[2])
if armed == 1 then return {1} end
if size == 0 then call('UNLINK', key) end -- without a TTL the entries would never leave
return armed
