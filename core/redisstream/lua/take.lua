-- Decides takes of one unit each, in the order of KEYS and in one step.
-- KEYS: the logs. ARGV: for each log the ids of its takes, 8 bytes each, of which there is one in all modes but c. Then
-- the quota, the window (us) and the TTL (ms) of a log; the mode (c: charge, p: peek, r: record, d: charge, and count
-- denials); how many units are kept where a log is trimmed; and the instant before which no take was executed, or 0.
-- Reply, for each log: how many takes are admitted, used, reset, how long the next must wait. Then the instant.
-- include clock
-- include stream
local n = #KEYS
local quota, window, ttl, mode, keep = ARGV[n + 1] + 0, ARGV[n + 2] + 0, ARGV[n + 3] + 0, ARGV[n + 4], ARGV[n + 5] + 0
local expired, since, reply, r = text(now - window + 1), now - 20000000, {}, 0 -- nothing is sent again after 20 s
if ARGV[n + 6] + 0 <= now then since = math.max(since, ARGV[n + 6] + 0) end

-- add adds an entry, behind those of this instant and of the next second. It returns an error or nil.
local function add(key, value)
  local id, failed = stamp .. '-0', nil
  for _ = 1, 3 do
    failed = redis.pcall('XADD', key, id, 'i', value)
    if not failed.err or not failed.err:find('equal or smaller', 1, true) then return failed.err and failed end
    local last = call('XINFO', 'STREAM', key)[8] -- also if the entry was removed
    if last:sub(1, 16) - now > 1000000 then
      rewrite(key, call('XRANGE', key, '-', text(now + 1000000)))
    else
      id = last:sub(1, 17) .. last:sub(18) + 1
    end
  end
  return failed
end

-- left returns how long the entry with that number, from the oldest on, stays.
local function left(key, number)
  local entry = call('XRANGE', key, '-', '+', 'COUNT', number)[number]
  return entry and math.min(instantOf(entry) - now, 0) + window or 0
end

for k = 1, n do
  local key, ids, there, own, failed = KEYS[k], ARGV[k], {}, 0, nil
  local size, takes = call('XLEN', key), #ids / 8
  if size > 0 then
    size = size - call('XTRIM', key, 'MINID', '=', expired)
    local recent = mode == 'p' and {} or call('XREVRANGE', key, '+', text(since))
    for i = 1, #recent do there[recent[i][2][2]] = true end
    while own < takes and there[ids:sub(8 * own + 1, 8 * own + 8)] do own = own + 1 end
    if size + takes - own > quota and mode ~= 'p' then size = rewind(key, size) end
  end
  local admitted, denied = math.min(own + math.max(quota - size, 0), takes), there[ids .. '\0']
  if mode == 'r' then admitted = takes elseif mode == 'p' or denied then admitted = 0 end
  local denies = mode == 'd' and admitted == 0 and not denied
  for i = own + 1, admitted do failed = failed or add(key, ids:sub(8 * i - 7, 8 * i)) end
  if denies then failed = add(key, ids .. '\0') end
  if not failed and (admitted > own or denies) then failed = arm(key, ttl) end
  if failed then return failed end
  reply[r + 1], reply[r + 2] = admitted, size - own
  size = size + admitted - own + (denies and 1 or 0)
  if (mode == 'r' or denies) and size > keep then size = size - call('XTRIM', key, 'MAXLEN', '=', keep) end
  reply[r + 3], reply[r + 4] = left(key, 1), 0
  if admitted < takes and size >= quota then reply[r + 4] = left(key, size - quota + 1) end
  r = r + 4
end
reply[r + 1] = now
return reply
