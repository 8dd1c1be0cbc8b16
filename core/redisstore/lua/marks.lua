-- Reads the marks and summaries of logs: see docs/internals.md, "Redis formats".
-- Provides layout; the functions readSummary and readHead.
local layout = '>I7I7I7I6bI3B' -- of 32 bytes; the weights of the open block follow

-- readSummary returns a summary as a table: total, how many units the log has; first, the stamp of its oldest entry;
-- newest, that of its newest one or a later instant; window, for which it keeps entries (us); gone, how many of the
-- oldest weights are of entries that have left, or, below 0, how many entries are before all weights, or unknown; lag,
-- how long before newest the TTL was set (us); near, whether the scores of entries are their stamps; open, the weights
-- of the open block. A summary begins with 2^53 - total, so that of those of one instant the last one comes first. The
-- last byte also tells how many may come before save removes the older ones.
local function readSummary(member)
  local rest, first, newest, window, gone, lag, room = struct.unpack(layout, member)
  return {total = 2 ^ 53 - rest, first = first, newest = newest, window = window, gone = gone, lag = lag,
    near = room >= 128, open = member:sub(33)}
end

-- readHead returns what the first member of a log tells: the mark, nil if there is none; the window in the mark or
-- summary (us), nil if there is neither; how many times their stamps the scores of entries are; and the summary of a
-- log with weights, or nil. head is the reply to ZRANGE key 0 0 WITHSCORES.
local function readHead(head)
  local score = head[2] and head[2] + 0 or 1
  if score > 0 then return nil, nil, 1 end
  if score == 0 then return head[1], head[1]:sub(6) + 0, head[1]:sub(1, 5) == 'keep:' and 2 or 1 end
  local summary = readSummary(head[1])
  return nil, summary.window, summary.near and 1 or 2, summary
end
