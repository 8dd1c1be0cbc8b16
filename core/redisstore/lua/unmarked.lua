-- What is different where no log may have a mark: see docs/internals.md, "Redis formats".
-- Expects call. Provides read and extend, which marked.lua describes; and weights and weightChanges, which are not
-- known here.
local weights, weightChanges, extend

local function read(log)
  local head = call('ZRANGE', log.key, '0', '0', 'WITHSCORES')
  if head[2] == '0' then return false end
  local oldest, entries = false, 0
  if head[2] then oldest, entries = head[2] + 0, call('ZCARD', log.key) end
  log.oldest, log.entries, log.units = oldest, entries, entries
  return true
end
