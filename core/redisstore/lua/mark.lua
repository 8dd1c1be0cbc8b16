-- What scripts know of marks: see docs/internals.md, "Redis formats".
-- Provides far, which scores are higher by where the mark is "keep:"; longestLease, by how much bookings are stamped
-- after now at most (us, store.LongestLease); and what sizes.lua does.
local far, longestLease = 4000000000000000, 1000000
-- include sizes
