-- Decides takes of one policy against their logs, in the order of KEYS and in one step. docs/internals.md, "Redis
-- formats", describes KEYS, ARGV, the reply, and what a log holds.
--
-- The time of the script is that of its calls of commands, 0.4 to 1.4 us each, then that of arguments, of numbers in
-- the reply and of functions made, 0.1 to 0.3 us each. Common takes are therefore decided without a function: one unit
-- to be charged by the short paths empty, one and several, and other costs by the path cost. All other takes, and those
-- that these parts leave undecided, go to the function decide, which is made when it is first needed.
-- include clock
-- include mark

local n = #KEYS
local ttl, reply, r = ARGV[n + 1], {}, 0 -- r: the length of reply
local plain = tonumber(ttl) -- nil where ARGV has the long form
local limits = (#ARGV - n - (plain and 1 or 5)) / 2
local quota, window = plain and ARGV[n + 2] + 0, plain and ARGV[n + 3] + 0 -- of the first limit
local quotas, windows, keep, cuts, cut -- set by several and request
local mode, upTo, varies, keepText, deciding, largest, used, resets, decide -- set by request and decide
local agree, before, asked -- not used here
local leaving = false -- whether the last log had expired entries: then the next one mostly has some as well

for k = 1, n do
  local key, id, told, marked = KEYS[k], ARGV[k], false, false -- told: whether a short path has replied
  local size = plain and #id == 8 and call('ZCARD', key) -- false if the take is not for the short paths
  if leaving and size and size <= many then
    local removed = call('ZREMRANGEBYSCORE', key, '1', cut)
    leaving, size = removed > 0, size - removed
  end
  if size == 0 then
    -- include empty
  elseif size and limits == 1 then
    -- include one
  elseif size then
    -- include several
  end
  if not told and limits == 1 and (marked or #id == 12) then
    -- include cost
  end
  if told then
    r = r + limits
  else
    if not decide then
      -- include request
      -- include decide
    end
    -- include ids
    local failed, admitted, wait, shadow = decide(key, ids, takes, cost)
    if failed then return failed end
    if plain then
      r = r + 1
      reply[r] = 0 -- not a short reply
    end
    -- include whole_reply
  end
end
return reply
