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
// The decisions are the same, to the microsecond. But a stream has the log of one limit, which is always the same, and
// each take costs one unit. Anything else is a [core.ConfigError]: when the limiter is made, for several limits, also
// if they have keys of their own, for other algorithms and the calendar, for rules, and for core.LimitBy,
// core.InFlight, core.WithLease, core.WithShadow and core.WithBan; when it is asked for, for a cost above 1 (also above
// the quota, and of core.Limiter.AllowAtMost), for settling to more than 1, and for a core.Override with Unlimited,
// several limits, or a window shorter than the limit's.
//
// A unit that is given back, as by core.WithRefund, is looked for from the newest on, and its bytes stay until the
// units recorded next to it have left, up to a hundred. So streams are not for limiters that give most units back.
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
// The store needs Redis 6.2 or later, or Valkey, with a user that may run EVAL, EVALSHA, TIME, PEXPIRE, PTTL, UNLINK,
// XADD, XDEL, XLEN, XRANGE, XREVRANGE and XTRIM, and for core.WithOverrides HGET, HSET, HDEL, HLEN and HGETALL, on keys
// "sash:*". The server must not evict keys (maxmemory-policy noeviction): an evicted log is a fresh quota.
//
// Errors are of type [core.StoreError], with the classes of package redisstore.
package redisstream
