-- Moves entries from the future to the present, so that they leave in one window at most. A clock that has stepped back
-- leaves such entries, for instance in a failover.
-- Expects key, mode, future, logStamp, logTtl, extra, now.
if future and mode ~= 'p' then
  local late = call('ZRANGEBYSCORE', key, '(' .. logStamp, '+inf')
  for i = 1, #late do call('ZADD', key, 'XX', logStamp, late[i]) end
  if #late > 0 then call('PEXPIRE', key, logTtl) end
  if extra > 0 then weightSearch().moveTo(key, now) end
end
