-- The instant of the script, on the server's clock.
-- Provides call; stamp, the score of an entry that is recorded now, as text; now, the same as a number (us).
local call = redis.call
local time = call('TIME')
local micros = time[2]
if #micros < 6 then micros = ('00000' .. micros):sub(-6) end
local stamp = time[1] .. micros -- of text, since a number loses its last digits when it becomes text
local now = stamp + 0
