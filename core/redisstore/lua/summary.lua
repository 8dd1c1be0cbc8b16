-- The summary of a log with weights: see docs/internals.md, "Redis formats".
-- Provides layout; the function readSummary.
local layout = '>I7I7I7I7I3B' -- of 32 bytes; the weights of the open block follow

-- readSummary returns a summary as a table: total, how many units the log has; first, the stamp of its oldest entry;
-- newest, that of its newest one or a later instant; window, for which it keeps entries (us); lag, how long before
-- newest the TTL was set (us); near, whether the scores of entries are their stamps; open, the weights of the open
-- block. A summary begins with 2^53 - total, so that of those of one instant the last one comes first. The last byte
-- also tells how many may come before save removes the older ones.
local function readSummary(member)
  local rest, first, newest, window, lag, room = struct.unpack(layout, member)
  return {total = 2 ^ 53 - rest, first = first, newest = newest, window = window, lag = lag, near = room >= 128,
    open = member:sub(33)}
end
