-- What is different where logs may have marks or weights: see docs/internals.md, "Redis formats".
-- Expects call, now, stamp, many, and what state.lua and weights.lua provide. Provides the functions below.

-- read reads what the log holds before its takes. It returns false if another script has to decide.
local function read()
  if summary and summary.unsaved then weights().save(key, summary) end
  local head = call('ZRANGE', key, '0', '1', 'WITHSCORES')
  oldest, entries, extra = head[2] and head[2] + 0, 0, 0
  mark, kept, scale, summary = readHead(head)
  if summary then
    entries = call('ZCOUNT', key, '1', '+inf')
    extra, oldest = summary.total - entries, summary.first
  elseif mark then
    entries, oldest = call('ZCARD', key) - 1, head[4] and head[4] / scale
  elseif oldest then
    entries = call('ZCARD', key)
  end
  weighs = summary or cost > 1 or upTo and takes > 1
  extends, logKeep, logTtl = varied or weighs, keep, keepTtl
  if kept then
    extends = kept < keep
    if not extends then logKeep, logTtl = kept, math.floor(kept / 1000) + 1000 end
  end
  if extends and not oldest then scale = 2 end
  logStamp = scale > 1 and textOf(scale * now) or stamp
  return true
end

-- extend changes the mark or summary of a log to which units were added: gives the first one, one of a longer window,
-- or "keep:" in place of "near:" when the log has become short.
local function extend()
  if summary then
    summary.lag = math.max(summary.newest - now, 0)
    if extends then summary.window = keep end
  elseif extends or mark and scale == 1 and entries < many then
    mark = weights().setMark(key, mark, string.format('%.0f', extends and keep or kept), entries, scale > 1)
    if mark:sub(1, 5) == 'keep:' then scale, logStamp = 2, textOf(2 * now) end
  end
end
