-- Finds a take in a log. Expects key, id, call. Provides first, the member of its entry; stamp, its score or nil.
local first = id
local stamp = call('ZSCORE', key, first)
if not stamp then
  first = id .. '\0' -- the take was denied
  stamp = call('ZSCORE', key, first)
end
