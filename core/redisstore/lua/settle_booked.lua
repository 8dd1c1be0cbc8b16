-- Settles bookings. Expects call, now, far, many, and what weights.lua provides. Sets settleBooked.

-- settleBooked changes the units of a booking, and moves it to now if it is stamped later.
settleBooked = function(key, id, want)
  -- include find
  if stamp then
    -- include settle_units
  end
end
