-- Expects id, base, logs, plain, reply, r; what plans.lua provides; decide and what it uses; failed. Provides the
-- function decideAll.
--
-- decideAll decides about a request in all cases, and writes its whole reply. weigh has decide look at a log. When
-- decide knows how many takes fit, it calls agree, which has weigh do the same with the next log, and only then tells
-- how many are recorded. So nothing is recorded before all logs have been looked at.
decideAll = function()
  local head, weigh, count = plain and 2 or 1, nil, nil
  -- How many takes fit into each log; how many are admitted, as far as is known; how many were executed before; whether
  -- this was found out after some logs were looked at, as if their units were those of others; whether a log has
  -- recorded the denial of the request before, so that none records it now.
  local rooms, least, earlier, again, deniedBefore
  -- include ids
  -- include agree
  -- include counter_joint
  -- include weigh
  repeat
    before, rooms, least, earlier, again, deniedBefore = again, {}, takes, 0, false, false
    weigh(1)
    if failed then return end
  until not again
  if plain then reply[r + 1] = 0 end -- not a short reply
  reply[r + head], r = least, r + head + whole
end
