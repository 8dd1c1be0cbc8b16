-- What is different where logs may have marks: see docs/internals.md, "Redis formats".
-- Expects call, now, stamp, far, many, and what state.lua provides. Provides read and extend.
-- include marks

-- read reads what the log holds before its takes. It returns false if another script has to decide.
local function read()
  local head = call('ZRANGE', key, '0', '1', 'WITHSCORES') -- the mark, and the sum of all weights or the oldest entry
  local near, weighted
  mark, near, weighted, kept = readMark(head)
  oldest, entries, extra = head[2] and head[2] + 0, 0, 0
  extends, logKeep, logTtl = varied or cost > 1 or upTo and takes > 1, keep, keepTtl
  if weighted then
    entries, extra = call('ZCOUNT', key, '1', '+inf'), (head[4] or 0) * 2 ^ 80
    oldest = entries > 0 and call('ZRANGE', key, -entries, -entries, 'WITHSCORES')[2] + 0
  elseif mark then
    entries, oldest = call('ZCARD', key) - 1, head[4] and head[4] + 0
  elseif oldest then
    entries = call('ZCARD', key)
  end
  if mark then
    extends = kept < keep
    if not extends then logKeep, logTtl = kept, math.floor(kept / 1000) + 1000 end
  end
  logNow, logStamp, shift = now, stamp, 0
  if mark and not near or extends and not oldest then
    logNow, logStamp, shift = now + far, string.format('%.0f', now + far), far
  end
  return true
end

-- extend changes the mark of a log to which units were added: gives the first one, one of a longer window, one that
-- tells of weights, or "keep:" in place of "near:" when the log has become short.
local function extend()
  local weighted = mark and mark:sub(-1) == 'w'
  if extends or mark and shift == 0 and entries < many or extra > 0 and not weighted then
    local window = string.format('%.0f', extends and keep or kept)
    mark = setMark(key, mark, window, weighted or extra > 0, entries, shift > 0)
    if shift == 0 and mark:sub(1, 5) == 'keep:' then
      logNow, logStamp, shift = now + far, string.format('%.0f', now + far), far
      oldest, at = nil, at and at + far
    end
  end
end
