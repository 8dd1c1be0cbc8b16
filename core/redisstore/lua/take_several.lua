-- Decides takes of several limits and one unit, as take.lua does those of one limit.
-- include clock

local n = #KEYS
local ttl, reply, r = ARGV[n + 1], {}, 0 -- r: the length of reply
local peek, varies = ttl == 'P', false
local plain = peek and 0 or tonumber(ttl) -- nil where ARGV has the long form
local limits = (#ARGV - n - (plain and 1 or 5)) / 2
local decide, failed

for k = 1, n do
  local key, id, told = KEYS[k], ARGV[k], false -- told: whether a short path has replied
  local size = plain and #id == 8 and call('ZCARD', key) -- false if the take is not for the short paths
  if size == 0 then
    -- include empty
  elseif size then
    local oldest, scale = call('ZRANGE', key, '0', '0', 'WITHSCORES')[2] + 0, 1
    -- include several
  end
  if told then
    r = r + limits
  else
    if not decide then
      -- include state
      local function make()
        -- include unmarked
        -- include decide
      end
      make()
    end
    r, failed = decide(key, id, r)
    if failed then return failed end
  end
end
return reply
