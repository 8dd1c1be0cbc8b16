-- Writes the whole reply of one log.
-- Expects limits, deciding, admitted, wait, shadow, used, resets. Provides reply and r.
reply[r + 1], reply[r + 2], r = admitted, wait, r + 2
if limits > deciding then
  r = r + 1
  reply[r] = shadow
end
for i = 1, limits do
  reply[r + 1], reply[r + 2], r = used[i], resets[i], r + 2
end
