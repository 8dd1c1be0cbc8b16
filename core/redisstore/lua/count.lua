-- How many units each window holds, and how many takes fit into all of them.
-- Expects key, and what decide.lua declares. Provides used, without own units; admitted, before own units and the mode
-- are considered; never; expired; uncounted.
expired = oldest and oldest <= logNow - logKeep
-- If the takes fit even where one entry only has expired, the rest is counted when the expired ones are removed.
uncounted = expired and own == 0 and limits == 1 and mode == 'c' and windows[1] == logKeep
  and units - 1 + takes * cost <= quotas[1] and entries <= 2 * many
admitted, never = takes, false
for i = 1, limits do
  local opens, held = logNow - windows[i], 0
  if oldest and oldest > opens then
    held = units
  elseif oldest and not uncounted then
    held = call('ZCOUNT', key, opens + 1, '+inf')
    if extra > 0 then held = held + weightSearch().sumSince(key, opens + 1 - shift, extra) end
  end
  if at and at > opens and not denied then held = math.max(held - own, 0) end
  used[i] = held
  if i <= deciding then
    never = never or cost > quotas[i]
    admitted = math.min(admitted, math.floor((quotas[i] - held) / cost))
  end
end
