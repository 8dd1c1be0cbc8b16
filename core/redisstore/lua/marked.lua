-- What is different where logs may have marks: see docs/internals.md, "Redis formats".
-- Expects call, now, stamp, far, many. Provides read and extend, for logs as log.lua has them.
-- include marks

-- read reads what a log holds before its takes. It also sets mark, false if there is none; kept, the window in it; and
-- extend, whether the mark is missing or has too short a window. It returns false if another script has to decide.
local function read(log)
  local key, keep, entries, extra = log.key, log.keep, 0, 0
  local head = call('ZRANGE', key, '0', '1', 'WITHSCORES') -- the mark, and the sum of all weights or the oldest entry
  local mark, near, weighted, kept = readMark(head)
  local oldest = head[2] and head[2] + 0
  log.extend, log.logKeep, log.logTtl = log.varies or log.cost > 1 or log.upTo and log.takes > 1, keep, log.ttl
  if weighted then
    entries, extra = call('ZCOUNT', key, '1', '+inf'), (head[4] or 0) * 2 ^ 80
    oldest = entries > 0 and call('ZRANGE', key, -entries, -entries, 'WITHSCORES')[2] + 0
  elseif mark then
    entries, oldest = call('ZCARD', key) - 1, head[4] and head[4] + 0
  elseif oldest then
    entries = call('ZCARD', key)
  end
  if mark then
    log.extend = kept < keep
    if not log.extend then log.logKeep, log.logTtl = kept, math.floor(kept / 1000) + 1000 end
  end
  log.entries, log.extra, log.units, log.oldest = entries, extra, entries + extra, oldest
  log.mark, log.kept = mark, kept
  log.now, log.stamp, log.shift = now, stamp, 0
  if mark and not near or log.extend and not oldest then
    log.now, log.stamp, log.shift = now + far, string.format('%.0f', now + far), far
  end
  return true
end

-- extend changes the mark of a log to which units were added: gives the first one, one of a longer window, one that
-- tells of weights, or "keep:" in place of "near:" when the log has become short.
local function extend(log)
  local mark, weighted = log.mark, log.mark and log.mark:sub(-1) == 'w'
  if log.extend or mark and log.shift == 0 and log.entries < many or log.extra > 0 and not weighted then
    local window = string.format('%.0f', log.extend and log.keep or log.kept)
    log.mark = setMark(log.key, mark, window, weighted or log.extra > 0, log.entries, log.shift > 0)
    if log.shift == 0 and log.mark:sub(1, 5) == 'keep:' then
      log.now, log.stamp, log.shift = now + far, string.format('%.0f', now + far), far
      log.oldest, log.at = nil, log.at and log.at + far
    end
  end
end
