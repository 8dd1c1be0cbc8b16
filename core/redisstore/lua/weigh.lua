-- Expects the locals of decideAll, and what pick changes. Provides the function weigh. It has decide decide about the
-- takes of a request on its log with number j and, by way of agree, those after it, and writes the whole reply of each.
-- It changes failed.
weigh = function(j)
  pick(j)
  local number, each = slots and upTo and 1 or takes, slots and 1 or cost
  local failure, admitted, wait, shadow
  if counters[j] then
    failure, admitted, wait, shadow = count(KEYS[base + j], number, each)
  else
    failure, admitted, wait, shadow = decide(KEYS[base + j], ids, number, each)
  end
  failed = failed or failure
  if failed then return end
  if upTo then
    if rooms[j] > 0 or least > 0 then admitted, wait = math.max(least, 1), 0 end
  elseif asked == 'c' or asked == 'd' then
    if least == takes or rooms[j] > least then admitted, wait = takes, 0 else admitted = least end
  end
  local r = r + head + offset
  -- include whole_reply
end
