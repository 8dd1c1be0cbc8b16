-- What scripts know of logs that are streams: see docs/internals.md, "A log in a stream".
-- Expects call, now. Provides the functions below.

-- instantOf returns when an entry was recorded.
local function instantOf(entry) return entry[1]:sub(1, 16) + 0 end

-- rebuilding returns functions that make a new stream, which most scripts do not need.
local function rebuilding()
  -- include stream_rewrite
  -- include stream_convert
  return {rewrite = rewrite, repair = repair, convert = convert}
end

-- sizeOf returns how many entries a log has, or nil and an error. A log in a sorted set becomes a stream before.
local function sizeOf(key)
  local size = redis.pcall('XLEN', key)
  if type(size) == 'number' then return size end
  if not size.err:find('WRONGTYPE', 1, true) then return nil, size end
  return rebuilding().convert(key)
end
