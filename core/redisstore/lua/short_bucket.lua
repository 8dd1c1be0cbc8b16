-- The short path of a token bucket whose units take whole microseconds to come back. It leaves a bucket undecided that
-- is further from full than it can be, because it was larger or the clock has been set back.
-- Expects key, call, now, reply, r, and what short_begin provides. Provides told and the short reply.
local value = call('GET', key)
local ahead = value and #value == 16 and value - now or 0
if ahead < 0 then ahead = 0 end
local units = math.ceil(ahead / span)
if value and #value > 16 or ahead > most then
  -- undecided
elseif ahead + span <= most then
  ahead = ahead + span
  call('SET', key, string.format('%.0f', now + ahead), 'PX', string.format('%.0f', math.ceil(ahead / 1000) + 1000))
  reply[r + 1], told = units * (span + 1) + ahead - units * span + 1, true
else
  reply[r + 1], told = -(units * (span + 1) + ahead - (units - 1) * span + 1), true
end
