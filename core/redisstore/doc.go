// Package redisstore keeps sash's logs in Redis, so that several servers share
// them: one sorted set a key, decided by one atomic script on the server's clock.
//
//	rdb := redis.NewClient(&redis.Options{Addr: "localhost:6379"})
//	nethttp.New(core.PerMinute(100), core.ByIP(), core.WithStore(redisstore.New(rdb)))
//
// It needs Redis 6.2 or later, or Valkey, with a user that may run EVAL, EVALSHA,
// TIME, PEXPIRE, PTTL, UNLINK, ZADD, ZCARD, ZCOUNT, ZRANGE, ZRANGEBYSCORE, ZREM, ZREMRANGEBYRANK,
// ZREMRANGEBYSCORE and ZSCORE on keys "sash:*". The server must not evict keys (maxmemory-policy noeviction): an
// evicted log is a fresh quota.
//
// Each take has an id, and equal ids count as one take that was sent twice. Several clones of a running process, as when
// one snapshot of a virtual machine is started several times, begin with the same state; so ids go on from a random
// number after 100 ms, after 1,024 ids and where the wall clock has been set. Clones of a process that was idle for 100 ms
// share no ids. Clones of one that was deciding may, if their wall clocks are not set when they start: at most 1,024 ids
// each, in their first 100 ms, and only takes of the same key are mistaken for each other. This needs random numbers of
// the kernel, or clocks, that differ between clones; Linux sees to the former where the hypervisor offers a VM generation
// ID.
//
// What goes wrong is a [core.StoreError] with one of the classes below; [Check] tells at start-up what is wrong with
// a server, for which its user needs INFO as well.
package redisstore
