-- The short path of a log that is not empty, for any number of limits.
-- Expects id, peek, ttl, plain, stamp as a score, and what several_look.lua expects. Provides told and the short reply.
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
