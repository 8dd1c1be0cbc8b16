-- Changes the short reply of several limits where the take is not recorded: an empty window has no time left.
-- Expects n, limits, reply, r.
for i = 1, limits do
  if reply[r + i] == ARGV[n + 1 + 2 * i] + 1 then reply[r + i] = 1 end
end
