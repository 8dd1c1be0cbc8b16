// Package redisstream keeps sash's logs in Redis Streams, which saves memory where a quota is large: package redisstore
// keeps them in sorted sets, of which Redis makes a skiplist above 128 entries.
//
//	rdb := redis.NewClient(&redis.Options{Addr: "localhost:6379"})
//	nethttp.New(core.PerHour(5000), core.ByIP(), core.WithStore(redisstream.New(rdb)))
//
// Bytes a unit when the quota is used up, the key included, as measured with Redis 7.0:
//
//	quota          10    100   1,000   10,000
//	sorted set     33     22     102      113
//	stream        478     48      29       26
//
// Where the units of a log are minutes apart, as 1,000 in a month, a unit takes 33 bytes, because their times take more
// digits. A check takes about one and a half times as much of Redis' CPU. So choose streams for quotas above 128 where
// memory counts more than CPU, and redisstore for small quotas: each stream takes 4 kB at least.
//
// The decisions are the same, to the microsecond. But a request asks one log, and each take costs one unit. Anything
// else is a [core.ConfigError]: when the limiter is made, for several limits, also if they have keys of their own, for
// other algorithms and the calendar, and for core.InFlight, core.WithLease and core.WithBan; when it is asked for, for
// a cost above 1 (also above the quota, and of core.Limiter.AllowAtMost), for settling to more than 1, and for several
// limits of core.LimitBy or of a core.Override.
//
// A unit that is given back, as by core.WithRefund, leaves its bytes behind until the units recorded next to it have
// left, up to a hundred. So streams are not for limiters that give most units back.
//
// # Change of store
//
// Streams and sorted sets are different logs, with different keys: a limiter that moves from one store to the other
// begins with empty logs. So each key gets one fresh quota, and up to two quotas in one window. While some processes of
// a rolling deploy have the old store and some the new one, each store admits a quota of its own. Where that is too
// much, lower the quota to a half on the old store; one window later, change the store; and when no process with the
// old store has run for a window, raise the quota again. The old keys expire one window after their last use.
//
// # Server
//
// The store needs Redis 6.2 or later, or Valkey, with a user that may run EVAL, EVALSHA, PEXPIRE, PTTL, TIME, UNLINK,
// XADD, XDEL, XINFO, XLEN, XRANGE, XREVRANGE and XTRIM, and for core.WithOverrides HDEL, HGET, HGETALL, HLEN and HSET,
// on keys "sash:*". The server must not evict keys (maxmemory-policy noeviction): an evicted log is a fresh quota.
// [Check] reports at start-up what is wrong with a server; for that, its user needs INFO as well.
//
// Errors are of type [core.StoreError], with the classes of package redisstore.
//
// [core.ConfigError]: https://pkg.go.dev/github.com/sashlimit/sash/core#ConfigError
// [core.StoreError]: https://pkg.go.dev/github.com/sashlimit/sash/core#StoreError
package redisstream
