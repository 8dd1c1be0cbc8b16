-- What ask does about several limits and a log that is not empty.
-- Expects the locals of ask. Changes said; provides the short reply.
local quotas, windows, keep, cuts, cut
local known = severalOf[j]
if known then quotas, windows, keep, cuts, cut = known[1], known[2], known[3], known[4], known[5] end
-- include several_look
if requests > 1 and not known then severalOf[j] = {quotas, windows, keep, cuts, cut} end
said = not odd and ask(j + 1, after, r + limits, denied and -1 or said) or 0
if said == 1 then
  if call('ZADD', key, 'NX', stamp, id) == 0 then return 0 end
  -- include several_added
elseif said == -1 then
  if call('ZSCORE', key, id) or denied and call('ZCOUNT', key, '(' .. stamp, '+inf') > 0 then return 0 end
  -- include several_kept
end
