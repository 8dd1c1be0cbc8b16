-- Decides, and records the takes that are admitted, which are the first ones.
-- Expects key, ids, takes, ttl, mode, quota, window, bound, and what look.lua provides. Provides admitted; held,
-- how many units the log had before these takes. Changes size and oldest.
local held = size - own
local admitted = mode == 'r' and takes or math.max(0, math.min(takes, quota - held))
admitted = denied and 0 or math.max(admitted, own)
local ending, added = '', admitted - own
if mode == 'p' then
  added = 0
elseif mode == 'd' and admitted == 0 and not denied then
  ending, added = '\0', 1
end
if added > 0 then
  local failed = add(key, ids:sub(8 * own + 1, 8 * (own + added)), ending)
  if failed then return failed end
  if size == 0 then
    local armed = redis.pcall('PEXPIRE', key, ttl)
    if armed ~= 1 then
      call('UNLINK', key) -- without a TTL the entry would never leave
      return armed
    end
  -- With more than a unit a second it is cheaper to look at the TTL than to renew it each time.
  elseif size * 1000000 <= window or call('PTTL', key) < ttl - 900 then
    call('PEXPIRE', key, ttl)
  end
  size, oldest = size + added, oldest or now
  local most = mode == 'r' and math.max(bound, 100000) or bound
  if (mode == 'r' or mode == 'd' and admitted == 0) and size > most then
    call('XTRIM', key, 'MAXLEN', '=', most)
    size, oldest = most, instantOf(call('XRANGE', key, '-', '+', 'COUNT', '1')[1])
  end
end
