-- Replaces a stream, since entries can be added to its end only.
-- Expects call, now, instantOf. Provides the functions below.

-- rewrite replaces a log by a stream of entries, which are instants and values in turn, oldest first. It returns the
-- number that the next entry of now has in its id, or nil and an error if the server would refuse to add entries.
local function rewrite(key, entries)
  local refused = redis.pcall('XADD', key, '0-0', 'i', '') -- never succeeds
  if not refused.err:find('greater than 0-0', 1, true) then return nil, refused end
  local left = call('PTTL', key)
  if left > 0 then call('PEXPIRE', key, left) end -- an error here leaves the log as it is
  call('UNLINK', key)
  local last, number = now, -1
  for i = 1, #entries, 2 do
    local at = entries[i]
    number = at == last and number + 1 or 0
    last = at
    call('XADD', key, string.format('%.0f-%d', at, number), 'i', entries[i + 1])
  end
  if left > 0 and #entries > 0 then call('PEXPIRE', key, left) end
  return last == now and number + 1 or 0
end

-- repair moves entries from the future to now. A clock that has stepped back leaves such entries. It returns what
-- rewrite does.
local function repair(key)
  local entries = {}
  for i, entry in ipairs(call('XRANGE', key, '-', '+')) do
    entries[2 * i - 1], entries[2 * i] = math.min(instantOf(entry), now), entry[2][2]
  end
  return rewrite(key, entries)
end
