-- The short path of one limit and a log that is not empty.
-- Expects key, id, size, and what take.lua and clock.lua provide. Provides told and the short reply; cut and leaving
-- where entries have expired.
-- include one_look
if peek then
  told = sign ~= 0
  -- include one_kept
elseif sign < 0 then
  told = not call('ZSCORE', key, id)
elseif sign > 0 and call('ZADD', key, 'NX', stamp, id) == 1 then
  told = true
  -- include one_added
end
reply[r + i] = sign * (held * (window + 1) + left + 1)
