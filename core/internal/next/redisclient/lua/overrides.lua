-- Lists the overrides of a policy, unless their version is known.
-- KEYS[1] the hash; ARGV: the known version. Reply: the hash; the version alone if it is the known one; or nothing if
-- there is no hash.
local version = redis.call('HGET', KEYS[1], '')
if version and version == ARGV[1] then return {version} end
return redis.call('HGETALL', KEYS[1])
