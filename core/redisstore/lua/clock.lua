-- The instant of the script, on the server's clock.
-- Provides call; stamp, the score of an entry that is recorded now, as text; now, the same as a number (us); textOf.
local call = redis.call
local time = call('TIME')
local stamp = time[1] .. ('00000' .. time[2]):sub(-6) -- of text: numbers as text lose digits
local now = stamp + 0

-- textOf writes an instant or a score, which '%.0f' writes as well, but in several times as many instructions.
local function textOf(n) return string.format('%d%09d', (n - n % 1e9) / 1e9, n % 1e9) end
