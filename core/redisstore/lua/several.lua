-- The short path of several limits and a log that is not empty.
-- Expects key, id, size, and what take_several.lua and clock.lua provide. Provides told and the short reply.
local oldest, current = call('ZRANGE', key, '0', '0', 'WITHSCORES')[2] + 0, now
-- include several_look
if odd then
  -- undecided
elseif peek or denied then
  told = (peek or not call('ZSCORE', key, id)) and
    not (denied and limits > 1 and call('ZCOUNT', key, '(' .. stamp, '+inf') > 0) -- no entry from the future
  -- include several_kept
elseif call('ZADD', key, 'NX', stamp, id) == 1 then
  told = true
  -- include several_added
end
