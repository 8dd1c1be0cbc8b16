-- Removes logs. KEYS: these. ARGV: for each the age (us) up to which entries stay. Reply: how many.
-- include clock
-- include stream
for k = 1, #KEYS do
  if ARGV[k] == '0' then
    call('UNLINK', KEYS[k])
  else
    call('XTRIM', KEYS[k], 'MINID', '=', text(now - ARGV[k] + 1))
    rewind(KEYS[k], 0)
  end
end
return {#KEYS}
