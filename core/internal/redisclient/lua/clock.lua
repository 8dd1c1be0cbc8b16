-- The instant of a script on the server's clock, in us since 1970: as text, which is what an entry gets, and as number.
local call = redis.call
local time = call('TIME')
local stamp = time[1] .. ('00000' .. time[2]):sub(-6)
local now = stamp + 0

-- text writes an instant as '%.0f' does, but in a fraction of the time.
local function text(n) return string.format('%d%09d', (n - n % 1e9) / 1e9, n % 1e9) end

-- arm sets the TTL (ms) of a log that was written to. It returns an error or nil.
local function arm(key, ttl)
  local left = call('PTTL', key)
  local armed = left >= ttl - 900 and 1 or redis.pcall('PEXPIRE', key, ttl)
  if armed == 1 then return nil end
  if left < 0 then call('UNLINK', key) end -- without a TTL the entries would never leave
  return armed
end
