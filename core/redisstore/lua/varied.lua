-- The short path of a log whose windows vary, for any number of limits. It leaves logs with weights undecided, and
-- those whose mark is of another window.
-- Expects key, id, and what take_varied.lua and clock.lua provide. Provides told and the short reply.
local head = call('ZRANGE', key, '0', '1', 'WITHSCORES') -- the mark, and the oldest entry
if head[4] and head[2] == '0' then
  local size, oldest, current = call('ZCARD', key) - 1, head[4] + 0, now + far
  local stamp = textOf(current)
  -- include several_look
  if odd or head[1] ~= 'keep:' .. string.format('%.0f', keep) then
    -- undecided
  elseif peek or denied then
    told = (peek or not call('ZSCORE', key, id)) and
      not (denied and limits > 1 and call('ZCOUNT', key, '(' .. stamp, '+inf') > 0) -- no entry from the future
    -- include several_kept
  elseif call('ZADD', key, 'NX', stamp, id) == 1 then
    told = true
    -- include several_added
  end
end
