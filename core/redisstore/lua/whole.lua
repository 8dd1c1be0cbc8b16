-- Writes the whole reply about one log behind reply[r].
-- Expects reply; r; admitted, wait; shadow, nil if there are no shadow limits; used, resets. Changes r.
reply[r + 1], reply[r + 2], r = admitted, wait, r + 2
if shadow then
  r = r + 1
  reply[r] = shadow
end
for i = 1, #used do reply[r + 1], reply[r + 2], r = used[i], resets[i], r + 2 end
