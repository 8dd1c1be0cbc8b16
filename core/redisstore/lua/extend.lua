-- Changes the mark of a log when units were added: gives the first one, one of a longer window, or "keep:" in place of
-- "near:" when the log has become short.
-- Expects key, and what decide.lua declares. Changes the state of the log, and at.
if new > 0 and (extend or near and units < many) then
  local window, entries = extend and keepText or mark:sub(6), units
  -- include mark_set
  first = 1
  if not shifted and mark:sub(1, 5) == 'keep:' then
    logNow, oldest, at = now + far, nil, at and at + far
    logStamp = string.format('%.0f', logNow)
  end
end
