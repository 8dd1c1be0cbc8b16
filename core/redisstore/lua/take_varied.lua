-- Decides takes of one unit by a policy whose windows vary, against logs that have marks and may have weights. It is
-- asked as take.lua is, and replies the same. Its only short path is several, for logs without weights whose mark is of
-- the longest window.
-- include clock
-- include weights

local n = #KEYS
local text, reply, r = ARGV[n + 1], {}, 0 -- r: the length of reply
local varies = text:byte() == 86 -- in the short form, which then begins with "V"
local ttl = varies and text:sub(2) or text
local peek = ttl == 'P'
local plain = peek and 0 or tonumber(ttl) -- nil where ARGV has the long form
local limits, decide, failed, longest = (#ARGV - n - (plain and 1 or 5)) / 2, nil, nil, ARGV[n + 3]
for i = 2, limits do
  if ARGV[n + 1 + 2 * i] - longest > 0 then longest = ARGV[n + 1 + 2 * i] end
end
local mark = 'keep:' .. longest -- of text: no number is to be written

for k = 1, n do
  local key, id, told = KEYS[k], ARGV[k], false -- told: whether the short path has replied
  if plain and #id == 8 then
    local head = call('ZRANGE', key, '0', '1', 'WITHSCORES') -- the mark, and the oldest entry
    if head[4] and head[1] == mark then
      local size, oldest, scale, stamp = call('ZCARD', key) - 1, head[4] / 2, 2, textOf(2 * now)
      -- include several
    end
  end
  if told then
    r = r + limits
  else
    if not decide then
      -- include state
      local function make()
        -- include marked
        -- include decide
      end
      make()
    end
    r, failed = decide(key, id, r)
    if failed then return failed end
  end
end
return reply
