-- Reads the mark of a log.
-- Expects head, the reply to ZRANGE key 0 0 WITHSCORES. Sets the locals mark, nil if the log has none; near, whether
-- the mark is "near:"; kept, the window in the mark (us).
mark = head[2] == '0' and head[1] or nil
near, kept = mark and mark:sub(1, 5) == 'near:', mark and mark:sub(6) + 0
