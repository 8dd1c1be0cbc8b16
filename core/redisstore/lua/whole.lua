-- Expects reply. Provides the function writeWhole.

-- writeWhole writes the whole reply about one log behind reply[r], and returns where it ends. The log has used and
-- resets, and if there are shadow limits, shadow.
local function writeWhole(r, log, admitted, wait)
  reply[r + 1], reply[r + 2], r = admitted, wait, r + 2
  if log.shadow then
    r = r + 1
    reply[r] = log.shadow
  end
  for i = 1, #log.used do reply[r + 2 * i - 1], reply[r + 2 * i] = log.used[i], log.resets[i] end
  return r + 2 * #log.used
end
