-- What is different where no log may have a mark: see docs/internals.md, "Redis formats".
-- Expects call, and what state.lua provides. Provides read and extend, which marked.lua describes; and weights,
-- which is not known here.
local weights, extend

local function read()
  local head = call('ZRANGE', key, '0', '0', 'WITHSCORES')
  if head[2] and head[2] + 0 <= 0 then return false end
  oldest, entries = false, 0
  if head[2] then oldest, entries = head[2] + 0, call('ZCARD', key) end
  return true
end
