-- Removes logs and counters. KEYS: these. ARGV: for each the age (us) up to which entries stay, 0 of counters.
-- Reply: how many.
-- include clock
-- include log
local log = newLog()
for k = 1, #KEYS do
  local key, young = KEYS[k], ARGV[k] + 0
  if young == 0 then
    call('UNLINK', key)
  else
    call('ZREMRANGEBYSCORE', key, '1', text(now - young))
    call('ZREMRANGEBYSCORE', key, log.future, '+inf')
    if call('ZSCORE', key, '') then log.recount(key) end
  end
end
return {#KEYS}
