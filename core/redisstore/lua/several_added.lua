-- What follows when a unit was added to a log of several limits: its TTL, and the end of its expired entries.
-- Expects key, ttl, plain, and what several_look.lua provides.
if size * 1000000 <= keep or call('PTTL', key) < plain - 900 then call('PEXPIRE', key, ttl) end
if cut then call('ZREMRANGEBYSCORE', key, '1', cut) end
