// Package redisstore keeps sash's logs in Redis, so that several servers share them. Each log is a sorted set, and one
// atomic script decides about a request, on the clock of the Redis server. Requests that wait go to the server
// together. Package redisstream needs less memory for large quotas.
//
//	rdb := redis.NewClient(&redis.Options{Addr: "localhost:6379"})
//	nethttp.New(core.PerMinute(100), core.ByIP(), core.WithStore(redisstore.New(rdb)))
//
// # Server
//
// The store needs Redis 6.2 or later, or Valkey, with a user that may run EVAL, EVALSHA, PEXPIRE, PTTL, TIME, UNLINK,
// ZADD, ZCARD, ZCOUNT, ZINCRBY, ZMSCORE, ZRANGE, ZREM, ZREMRANGEBYRANK, ZREMRANGEBYSCORE and ZSCORE, for limits of
// other algorithms GET, INCRBY and SET, and for core.WithOverrides HDEL, HGET, HGETALL, HLEN and HSET, on keys
// "sash:*". The server must not evict keys (maxmemory-policy noeviction): an evicted log is a fresh quota. [Check]
// reports at start-up what is wrong with a server; for that, its user needs INFO as well.
//
// # Several servers
//
// All logs that a policy has of one key are on the same server of a Cluster or a Ring, so a request over several limits
// of a key is decided in one step. A request over several keys is not: there, its keys are asked one after the other,
// and what they have recorded is removed again as soon as one denies. No quota is ever exceeded, but a request that is
// denied may hold room of the others for a round trip, so that another one is denied that would have fitted. If a
// server does not answer in time in between, the others may count the request until the limiter has settled it. On one
// server, also behind Sentinel, one step decides about all keys.
//
// # IDs
//
// Each take has an id, and takes with equal ids count as one take that was sent twice. Ids count from a random number
// that a process chooses when it starts. Clones of a running process, such as a virtual machine that is started several
// times from one snapshot, go on from the same number: start the process after the machine.
//
// Errors are of type [core.StoreError], with one of the classes below.
//
// [core.StoreError]: https://pkg.go.dev/github.com/sashlimit/sash/core#StoreError
package redisstore
