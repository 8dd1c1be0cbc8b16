-- How long the takes are denied that were not admitted.
-- Expects key, mine, and what decide.lua declares. Provides wait; future.
local from, to, counted, skipped = 1, refused and deciding or 0, mine, 0
-- include longest
local wait = longest
if never and admitted == 0 then
  wait = -1
elseif refused then
  -- With several limits, none of them may look at the entry from the future.
  future = future or limits > 1 and units > 0 and scoreAt(key, '-1') > logNow
  wait = math.max(wait, 1) -- if they are sent again so late that there is room by now
end
