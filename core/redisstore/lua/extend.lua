-- Changes the mark of a log when units were added: gives the first one, one of a longer window, one that tells of
-- weights, or "keep:" in place of "near:" when the log has become short.
-- Expects key, and what decide.lua declares. Changes the state of the log, and at.
if new > 0 and (extend or near and entries < many or extra > 0 and not weighted) then
  local window = extend and keepText or string.format('%.0f', kept)
  weighted = weighted or extra > 0
  -- include mark_set
  if not shifted and mark:sub(1, 5) == 'keep:' then
    shift, logNow, oldest, at = far, now + far, nil, at and at + far
    logStamp = string.format('%.0f', logNow)
  end
end
