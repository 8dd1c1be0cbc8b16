// Package redisstore keeps sash's logs in Redis, so that several servers share them. Each key has one sorted set, and
// one atomic script decides, on the clock of the Redis server. Package redisstream needs less memory for large quotas.
//
//	rdb := redis.NewClient(&redis.Options{Addr: "localhost:6379"})
//	nethttp.New(core.PerMinute(100), core.ByIP(), core.WithStore(redisstore.New(rdb)))
//
// The store needs Redis 6.2 or later, or Valkey, with a user that may run EVAL, EVALSHA, TIME, PEXPIRE, PTTL, UNLINK,
// ZADD, ZCARD, ZCOUNT, ZRANGE, ZRANGEBYSCORE, ZREM, ZREMRANGEBYRANK, ZREMRANGEBYSCORE, ZSCORE and ZUNIONSTORE, for
// limits of other algorithms GET, SET and INCRBY, and for core.WithOverrides HGET, HSET, HDEL, HLEN and HGETALL, on
// keys "sash:*". The server must not evict keys (maxmemory-policy noeviction): an evicted log is a fresh quota.
//
// A request over several logs is decided in one step if one script may use all of them: on one server, or on one shard
// of a Ring where go-redis tells which shard has a key. Otherwise, as in a cluster, its logs are asked one after the
// other, in the order of their limits, and what they have recorded is removed again as soon as one denies. No quota is
// ever exceeded, but a request that is denied may hold room of the others for a round trip, so that another one is
// denied that would have fitted. If a server does not answer in between, the error says whether the others may still
// count the request.
//
// Each take has an id, and takes with equal ids count as one take that was sent twice. Ids count from a random number
// that a process chooses when it starts. Clones of a running process, such as a virtual machine that is started several
// times from one snapshot, go on from the same number: start the process after the machine.
//
// Errors are of type [core.StoreError], with one of the classes below. [Check] reports at start-up what is wrong with a
// server; for that, its user needs INFO as well.
package redisstore
