-- A log is a stream of what one key was admitted in one window. An entry's id begins with the stamp of when it was
-- recorded; its value, under the name i, are the 8 bytes of a take's id, and a byte 0 more if it is a counted denial.
local function instantOf(entry) return entry[1]:sub(1, 16) + 0 end

-- rewrite replaces a log by entries that are as XRANGE returns them, since a stream grows at its end alone.
local function rewrite(key, entries)
  local ttl = call('PTTL', key)
  if ttl > 0 then call('PEXPIRE', key, ttl) end -- an error here leaves the log as it is
  call('UNLINK', key)
  for i = 1, #entries do call('XADD', key, entries[i][1], 'i', entries[i][2][2]) end
  if ttl > 0 and entries[1] then call('PEXPIRE', key, ttl) end
end

-- rewind removes what is later than a second from now: it was recorded before the clock was set back. It returns how
-- many units are left.
local function rewind(key, size)
  local last = call('XREVRANGE', key, '+', '-', 'COUNT', '1')[1]
  if not last or instantOf(last) <= now + 1000000 then return size end
  local kept = call('XRANGE', key, '-', text(now + 1000000))
  rewrite(key, kept)
  return #kept
end
