-- Adds entries of another log, unless they are there. KEYS[1] the log; ARGV: 1 keep (us), 2 its
-- TTL (ms), 3 "v" where windows vary, else ""; then id, age (us) and units of each entry.
local key, call = KEYS[1], redis.call

local time = call('TIME')
local now = time[1] * 1000000 + time[2]

-- In a log where windows vary the longest one holds, and scores may be others; see take.lua, also for many.
local many = 2000
local keep, ttl, longest, far = ARGV[1] + 0, ARGV[2], nil, 4000000000000000
local head = call('ZRANGE', key, '0', '0', 'WITHSCORES')
if head[2] == '0' then
  longest = head[1]
  if longest:sub(1, 5) == 'keep:' then now = now + far end
  local kept = longest:sub(6) + 0
  if kept >= keep then keep, ttl = kept, math.floor(kept / 1000) + 1000 end
end

local added = 0
for i = 4, #ARGV, 3 do
  local id, stamp = ARGV[i], string.format('%.0f', now - ARGV[i + 1])
  if ARGV[i + 1] + 0 < keep and not call('ZSCORE', key, id .. '\0') and call('ZADD', key, 'NX', stamp, id) == 1 then
    added = added + 1
    for unit = 1, ARGV[i + 2] - 1 do
      call('ZADD', key, 'NX', stamp, id .. string.char(math.floor(unit / 256), unit % 256))
    end
  end
end
if added > 0 then
  if longest and longest:sub(6) + 0 < keep or ARGV[3] == 'v' and not longest then
    local kind = longest and longest:sub(1, 5)
    if longest then
      call('ZREM', key, longest)
    elseif call('ZCARD', key) < many then
      kind = 'keep:'
      local all, batch, n = call('ZRANGE', key, '0', '-1', 'WITHSCORES'), {}, 0
      for i = 1, #all, 2 do
        batch[n + 1], batch[n + 2], n = string.format('%.0f', all[i + 1] + far), all[i], n + 2
        if n == 2000 or i == #all - 1 then
          call('ZADD', key, 'XX', unpack(batch, 1, n))
          n = 0
        end
      end
    end
    call('ZADD', key, '0', (kind or 'near:') .. ARGV[1])
  end
  call('PEXPIRE', key, ttl)
end
return {1}
