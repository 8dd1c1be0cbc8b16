-- Decides takes of one limit and one unit against their logs, in the order of KEYS and in one step. docs/internals.md,
-- "Redis formats", describes KEYS, ARGV, the reply, and what a log holds. Of a log with a mark it only tells so.
--
-- The time of the script is that of its calls of commands, 0.4 to 1.4 us each, then that of arguments, of numbers in
-- the reply and of functions made, 0.1 to 0.3 us each. Common takes are therefore decided by the short paths empty and
-- one. All other takes, and those that these leave undecided, go to the function decide, which is made when it
-- is first needed.
-- include clock

local n = #KEYS
local ttl, reply, r = ARGV[n + 1], {}, 0 -- r: the length of reply
local peek, varies = ttl == 'P', false
local plain = peek and 0 or tonumber(ttl) -- nil where ARGV has the long form
local limits = (#ARGV - n - (plain and 1 or 5)) / 2
local quota, window = plain and ARGV[n + 2] + 0, plain and ARGV[n + 3] + 0 -- of the first limit
local decide, failed, cut
local leaving = false -- whether the last log had expired entries: then the next one mostly has some as well

for k = 1, n do
  local key, id, told = KEYS[k], ARGV[k], false -- told: whether a short path has replied
  local size = plain and #id == 8 and call('ZCARD', key) -- false if the take is not for the short paths
  if leaving and size and size <= many then
    local removed = call('ZREMRANGEBYSCORE', key, '1', cut)
    leaving, size = removed > 0, size - removed
  end
  if size == 0 then
    -- include empty
  elseif size then
    -- include one
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
