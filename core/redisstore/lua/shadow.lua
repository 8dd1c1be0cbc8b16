-- How long the takes would be denied if the shadow limits decided: without these takes themselves.
-- Expects mine, and what decide.lua declares. Provides shadow.
local from, to, counted, skipped = deciding + 1, limits, 0, mine
-- include longest
local shadow = longest
