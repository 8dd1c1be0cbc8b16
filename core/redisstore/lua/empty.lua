-- The short path of an empty log, for any number of limits: the take is admitted.
-- Expects key, id, size, and what take.lua and clock.lua provide. Provides told and the short reply.
if not peek then
  call('ZADD', key, stamp, id)
  local armed = redis.pcall('PEXPIRE', key, ttl)
  if armed ~= 1 then
    call('UNLINK', key) -- without a TTL the entry would never leave
    return armed
  end
end
told = true
for i = 1, limits do reply[r + i] = (peek and 0 or ARGV[n + 1 + 2 * i]) + 1 end
