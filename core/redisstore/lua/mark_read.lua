-- Reads the mark of a log.
-- Expects head, the reply to ZRANGE key 0 0 WITHSCORES. Sets the locals mark, nil if the log has none; near, whether
-- the mark is "near:"; weighted, whether the log has weights; kept, the window in the mark (us).
mark, near, weighted = head[2] == '0' and head[1] or nil, false, false
if mark then
  near, weighted = mark:sub(1, 5) == 'near:', mark:sub(-1) == 'w'
  kept = mark:sub(6, weighted and -2 or -1) + 0
end
