-- What ask does about one limit and a log that is not empty.
-- Expects the locals of ask. Changes said; provides the short reply.
local quota, window, cut, leaving = ARGV[n + 2] + 0, ARGV[n + 3] + 0, cutOf[j], false
-- include one_look
said = sign ~= 0 and ask(j + 1, after, r + 1, sign < said and sign or said) or 0
if said == 1 then
  if call('ZADD', key, 'NX', stamp, id) == 0 then return 0 end
  -- include one_added
  cutOf[j] = cut
elseif said == -1 then
  if call('ZSCORE', key, id) then return 0 end
  if left <= 0 then
    held = call('ZCOUNT', key, now - window + 1, '+inf')
    left = held > 0 and math.min(call('ZRANGE', key, -held, -held, 'WITHSCORES')[2] - now + window, window) or 0
  end
end
-- include short_reply
