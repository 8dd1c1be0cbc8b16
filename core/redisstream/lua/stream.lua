-- What scripts know of logs that are streams: see docs/internals.md, "A log in a stream".
-- Expects call, now. Provides the functions below.

-- instantOf returns when an entry was recorded.
local function instantOf(entry) return entry[1]:sub(1, 16) + 0 end

-- rebuilding returns functions that make a new stream, which most scripts do not need.
local function rebuilding()
  -- include rewrite
  return {rewrite = rewrite, repair = repair}
end
