-- Expects call, rewrite. Provides the function below.

-- convert replaces a log in a sorted set by a stream. It returns how many entries the log has, or nil and an error.
local function convert(key)
  -- include mark
  local all = redis.pcall('ZRANGE', key, '0', '-1', 'WITHSCORES')
  if all.err then return nil, all end
  local head, entries, e = all, {}, 0
  local mark, near, weighted, kept
  -- include mark_read
  if weighted then
    return nil, {err = 'UNITS the sorted set has takes of more than one unit, which a stream cannot hold'}
  end
  local shift = mark and not near and far or 0
  for i = mark and 3 or 1, #all, 2 do
    entries[e + 1], entries[e + 2], e = all[i + 1] - shift, all[i], e + 2
  end
  local _, failed = rewrite(key, entries)
  return not failed and e / 2 or nil, failed
end
