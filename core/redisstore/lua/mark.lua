-- What scripts know of marks: see docs/internals.md, "Redis formats".
-- Provides far, which scores are higher by where the mark is "keep:"; many, so many scores change in about 2 ms.
local far = 4000000000000000
local many = 2000
