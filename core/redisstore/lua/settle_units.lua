-- Changes how many units a take has in a log.
-- Expects key, id, call; first, the member of its entry; stamp, its score; want, its units from now on; far, many.
local head = call('ZRANGE', key, '0', '0', 'WITHSCORES')
local mark, near, weighted, kept
-- include mark_read
local shifted = mark and not near
local at, all, weight = stamp - (shifted and far or 0), 0, 0
-- include weights
if weighted then
  all = (call('ZSCORE', key, 'sum') or 0) * 2 ^ 80
  weight = removeWeight(key, first, at, all)
end
if want == 0 then call('ZREM', key, first) end
if want > 1 then addWeight(key, first, at, want - 1, all - weight + want - 1) end

-- A log whose mark is "near:" changes its scores when it has become short. A take tells the window of a log that had no
-- mark.
local entries = call('ZCOUNT', key, '1', '+inf')
if want > 1 and not weighted or near and want == 0 and entries < many then
  local window = string.format('%.0f', mark and kept or 0)
  weighted = weighted or want > 1
  -- include mark_set
end
