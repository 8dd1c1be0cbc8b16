-- Lists the overrides of a policy, unless their version is known.
-- KEYS[1] the hash; ARGV: the known version. Reply: the hash; only the version if it is the one; nothing without a hash.
local version = redis.call('HGET', KEYS[1], '')
if version and version == ARGV[1] then return {version} end
return redis.call('HGETALL', KEYS[1])
