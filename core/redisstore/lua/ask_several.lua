-- The short path of a request over several logs, of which some have several limits. See ask.lua.
-- Expects id and base, the request's id and the number of keys before its own; logs; requests; reply; what clock.lua
-- provides. Provides the function ask.
ask = function(j, n, r, said)
  if j > logs then
    replied = r
    return said
  end
  local key, limits, ttl = KEYS[base + j], ARGV[n] + 0, ARGV[n + 1]
  local size, after, plain = call('ZCARD', key), n + 2 + 2 * limits, ttl -- in a difference, text becomes a number
  if size == 0 then
    said = ask(j + 1, after, r + limits, said)
    if said == 1 then
      local told -- for the part only
      -- include empty
    elseif said == -1 then
      for i = 1, limits do reply[r + i] = 1 end
    end
  else
    local oldest, scale = call('ZRANGE', key, '0', '0', 'WITHSCORES')[2] + 0, 1
    -- include several_look
    said = not odd and ask(j + 1, after, r + limits, denied and -1 or said) or 0
    if said == 1 and not peek then
      if call('ZADD', key, 'NX', stamp, id) == 0 then return 0 end
      -- include several_added
    elseif said ~= 0 then
      if not peek and call('ZSCORE', key, id) then return 0 end
      if denied and limits > 1 and call('ZCOUNT', key, '(' .. stamp, '+inf') > 0 then return 0 end
      -- include several_kept
    end
  end
  return said
end
