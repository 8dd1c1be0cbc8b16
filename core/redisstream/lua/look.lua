-- What a log holds before its takes. Expired entries are removed.
-- Expects key, ids, takes, since, mode, quota, window, cut, call, now. Provides size; oldest, the instant of the oldest
-- entry, or nil; own, how many of the takes, from the first on, were executed before; denied, whether a denial was
-- recorded then. Sets cut.
--
-- A node of a stream keeps the bytes of entries that are removed, and each command that looks for the oldest entry goes
-- through them: so only a log that may be full is looked at before it is trimmed.
local size, oldest, own, denied = call('XLEN', key), nil, 0, false
if size >= quota then oldest = instantOf(call('XRANGE', key, '-', '+', 'COUNT', '1')[1]) end
if size > 0 and not (oldest and oldest > now - window) then
  cut = cut or string.format('%.0f', now - window + 1)
  size = size - call('XTRIM', key, 'MINID', '=', cut)
  oldest = size > 0 and instantOf(call('XRANGE', key, '-', '+', 'COUNT', '1')[1]) or nil
end
if size > 0 and mode ~= 'p' then
  local recent = call('XREVRANGE', key, '+', since)
  if recent[1] then
    local there = {}
    for i = 1, #recent do there[recent[i][2][2]] = true end
    while own < takes and there[ids:sub(8 * own + 1, 8 * own + 8)] do own = own + 1 end
    denied = own == 0 and there[ids .. '\0'] or false
  end
end
