-- What scripts know of marks: see docs/internals.md, "Redis formats".
-- Provides far, which scores are higher by where the mark is "keep:", and what sizes.lua does.
local far = 4000000000000000
-- include sizes
