-- Decides takes of one limit and one unit against their logs, which are streams, in the order of KEYS and in one step.
-- docs/internals.md, "A log in a stream", describes KEYS, ARGV, the reply, and what a log holds.
-- include clock
-- include stream
-- include add

local n, since = #KEYS, ARGV[#ARGV] -- no take of this command can have been executed before since
if since - now > 0 then return {now} end
local ttl, reply, r = ARGV[n + 1], {}, 0 -- r: the length of reply
local plain = tonumber(ttl) -- nil where ARGV has the long form
local mode, bound, first = 'c', 0, n + 2
if not plain then mode, ttl, bound, first = ttl, ARGV[n + 3], ARGV[n + 5] + 0, n + 6 end
local quota, window = ARGV[first] + 0, ARGV[first + 1] + 0
local cut -- the first instant that is not expired, as text

for k = 1, n do
  local key, ids = KEYS[k], ARGV[k]
  local takes = #ids / 8
  -- include look
  -- include record
  -- include reply
end
reply[r + 1] = now
return reply
