-- Recognizes takes that were sent again because their reply was lost, and records the others.
-- Expects key, and what decide.lua declares. Provides admitted; new; own, denied, at; again. Changes extra.
again, new = false, 0
admitted = mode == 'r' and takes or math.max(admitted, 0)
if own > 0 then
  admitted = denied and 0 or upTo and own or math.max(admitted, own / cost)
elseif (admitted < takes or mode == 'd') and mode ~= 'p' then -- a denial that was recorded stays one
  own, denied, at = executed(key, ids, takes, cost)
  again = own > 0
end
-- ZADD comes first: where memory is short it is refused before anything has changed.
if again or mode == 'p' then
  -- nothing is added
elseif not denied and admitted * cost > own then
  local there
  there, extra = add(key, logStamp, ids, admitted, cost, '', extra)
  new = admitted * cost - own
  if there > own then
    call('PEXPIRE', key, logTtl)
    own, denied, at = executed(key, ids, takes, cost)
    again = true
  end
elseif mode == 'd' and own == 0 and admitted == 0 and not never then
  new, extra = cost, select(2, add(key, logStamp, ids, 1, cost, '\0', extra))
end
