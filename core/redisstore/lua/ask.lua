-- The short path of a request over several logs of one limit each: a unit is charged to each, or to none.
-- Expects id and base, the request's id and the number of keys before its own; logs; requests; reply; what clock.lua
-- provides; cutOf, which has what is known of each log's limit. Provides the function ask.
--
-- ask looks at the log with number j of the request, then at all logs after it, and only then records the unit, so that
-- nothing is written for a request that is denied. Its arguments begin at ARGV[n], its numbers at reply[r + 1]. said is
-- 1 if the logs before it have room, and -1 if one of them denies. ask returns the same of all logs, 0 if a log is not
-- for the short path or the request was executed before, or an error. It sets replied to the end of the short reply.
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
    local quota, window, cut, leaving = ARGV[n + 2] + 0, ARGV[n + 3] + 0, cutOf[j], false
    -- include one_look
    said = sign ~= 0 and ask(j + 1, after, r + 1, sign < said and sign or said) or 0
    if said == 1 and not peek then
      if call('ZADD', key, 'NX', stamp, id) == 0 then return 0 end
      -- include one_added
      cutOf[j] = cut
    elseif said ~= 0 then
      if not peek and call('ZSCORE', key, id) then return 0 end
      -- include one_kept
    end
    reply[r + i] = sign * (held * (window + 1) + left + 1)
  end
  return said
end
