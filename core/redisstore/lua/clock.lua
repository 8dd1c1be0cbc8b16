-- What all scripts about logs need: the instant, on the server's clock, and what they know of marks, which
-- docs/internals.md describes in "Redis formats".
-- Provides call; stamp, the score of an entry that is recorded now, as text; now, the same as a number (us); textOf;
-- far, by how much the scores of summaries are below those of blocks; longestLease, by how much bookings are stamped
-- after now at most (us, store.LongestLease); and what sizes.lua does.
local call = redis.call
local time = call('TIME')
local stamp = time[1] .. ('00000' .. time[2]):sub(-6) -- of text: numbers as text lose digits
local now = stamp + 0
local far, longestLease = 4000000000000000, 1000000
-- include sizes

-- textOf writes an instant or a score, which '%.0f' writes as well, but in several times as many instructions.
local function textOf(n) return string.format('%d%09d', (n - n % 1e9) / 1e9, n % 1e9) end
