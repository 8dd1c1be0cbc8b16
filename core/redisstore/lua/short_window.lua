-- The short path of a fixed window: it leaves values of other periods undecided where the clock may have been set back.
-- Expects key, quota, call, reply, r, and what short_begin provides. Provides told and the short reply.
local value = call('GET', key)
local units = value and value - mark or 0
if value and units >= 0 and units < quota then
  call('INCRBY', key, '1')
  reply[r + 1], told = units * (span + 1) + left + 1, true
elseif units == quota then
  reply[r + 1], told = -(units * (span + 1) + left + 1), true
elseif not value or units < 0 and units > -4000000000000000 then
  call('SET', key, string.format('%.0f', mark + 1), 'PX', string.format('%.0f', math.ceil(left / 1000) + 1000))
  reply[r + 1], told = left + 1, true
end
