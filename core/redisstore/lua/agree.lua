-- Expects the locals of decideAll, and asked, logs, base, counters. Provides the function agree, which decide calls for
-- one log.
--
-- fits is how many takes the log has room for, beside those that it has recorded before; there is how many these are.
-- denied is whether the log has recorded a denial of them before. agree returns how many takes the log records in all,
-- and sets the mode for that. decide may call it once more when it finds takes in the log while it records them.
agree = function(fits, there, denied)
  local j, known = log, rooms[log]
  deniedBefore = deniedBefore or denied
  if slots and upTo then -- one slot is enough for all units
    fits, there = fits > 0 and takes or 0, there > 0 and takes or 0
  end
  rooms[j] = math.max(fits, 0)
  if not known then
    least, earlier = math.min(least, math.max(rooms[j], there)), math.max(earlier, slots and upTo and 0 or there)
    if j < logs then
      weigh(j + 1)
      pick(j)
    elseif asked ~= 'p' and asked ~= 'r' then
      -- A log has recorded takes only because all had room, so they count as admitted even if a log has lost them.
      least = upTo and earlier > 0 and earlier or math.max(least, earlier)
      for k = 1, (least < takes or asked == 'd') and not before and logs or 0 do
        again = again or not counters[k] and executed(KEYS[base + k], ids, takes, cost) > 0
      end
    end
  end
  if failed or again or deniedBefore or asked == 'p' or asked == 'r' and slots then return rooms[j] end
  if asked == 'r' then
    least = takes
  elseif least == 0 and rooms[j] > 0 then
    return rooms[j] -- another log denies all takes
  end
  mode = asked == 'd' and slots and 'c' or asked
  local recorded = math.min(least, math.max(rooms[j], there))
  return slots and upTo and math.min(recorded, 1) or recorded
end
