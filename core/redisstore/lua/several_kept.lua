-- Changes the short reply of several limits where the take is not recorded: an empty window has no time left.
-- Expects limits, windows, reply, r.
for i = 1, limits do
  reply[r + i] = reply[r + i] == windows[i] + 1 and 1 or reply[r + i]
end
