-- Reads the marks of logs: see docs/internals.md, "Redis formats".
-- Expects far, and what summary.lua provides. Provides the function below.

-- readHead returns what the first member of a log tells: the mark, nil if there is none; the window in the mark or
-- summary (us), nil if there is neither; by how much the scores of entries are higher than their stamps; and the
-- summary of a log with weights, or nil. head is the reply to ZRANGE key 0 0 WITHSCORES.
local function readHead(head)
  local score = head[2] and head[2] + 0 or 1
  if score > 0 then return nil, nil, 0 end
  if score == 0 then return head[1], head[1]:sub(6) + 0, head[1]:sub(1, 5) == 'keep:' and far or 0 end
  local summary = readSummary(head[1])
  return nil, summary.window, summary.near and 0 or far, summary
end
