-- Removes what a log or a counter has, but bookings that are stamped after now: their leases may go on. They have
-- weights, so without a summary there is none. What is later than any booking shows that the clock has stepped back.
-- KEYS[1] the log. Reply: 1.
-- include clock
-- include weights
local key = KEYS[1]
local head = redis.pcall('ZRANGE', key, '0', '0', 'WITHSCORES') -- an error of the numbers of other algorithms
local _, _, scale, summary = readHead(head)
local booked = summary and summary.newest <= now + longestLease
if booked and call('ZCOUNT', key, '(' .. textOf(scale * now), '+inf') > 0 then
  while weights().drop(key, summary, now, scale, 0) > 0 do end
  weights().save(key, summary)
else
  call('UNLINK', key)
end
return {1}
