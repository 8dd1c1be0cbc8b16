package redisstore

import (
	"cmp"
	"context"
	"embed"
	"errors"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	"github.com/sashlimit/sash/core/internal/redisclient"
	"github.com/sashlimit/sash/core/store"
)

// Client is the part of a go-redis client that the store needs. *redis.Client, *redis.ClusterClient, *redis.Ring and
// failover clients have it. Clients of other types may need [WithOneServer].
type Client = redisclient.Client

// The Class of each [core.StoreError] of this store and of those of package redisstream.
//
// [core.StoreError]: https://pkg.go.dev/github.com/sashlimit/sash/core#StoreError
const (
	ClassTimeout  = redisclient.ClassTimeout  // "timeout": no reply in time
	ClassCanceled = redisclient.ClassCanceled // "canceled": the caller has given up
	ClassRefused  = redisclient.ClassRefused  // "refused": no connection, or it ended before the reply
	ClassPool     = redisclient.ClassPool     // "pool": the client has no free connection, or was closed
	ClassAuth     = redisclient.ClassAuth     // "auth": another login is wanted, or the user lacks a permission
	ClassReadOnly = redisclient.ClassReadOnly // "read-only": no writes: a replica, or it cannot save or lacks replicas
	ClassCluster  = redisclient.ClassCluster  // "cluster": it is down or moves slots, or the client is wrong
	ClassBusy     = redisclient.ClassBusy     // "busy": the server loads its data, or runs another program's script
	ClassOOM      = redisclient.ClassOOM      // "oom": the server is out of memory
	ClassScript   = redisclient.ClassScript   // "script": the server does not run the scripts
	ClassType     = redisclient.ClassType     // "type": the key holds another type; the only class with OneKey
	ClassProtocol = redisclient.ClassProtocol // "protocol": the reply is not one of the scripts', or TLS fails
)

// Option changes a store.
type Option = redisclient.Option

// WithPrefix sets the prefix of every key of the store, before a colon: 1 to 16 characters of [a-z0-9._-]. The default
// is "sash". Use it to separate services that share a Redis.
func WithPrefix(prefix string) Option {
	return func(o *redisclient.Options) { o.Prefix = prefix }
}

// WithOneServer says that all keys of the client are on one server. It is for clients of types that are unknown to this
// package, such as one that wraps a go-redis client to change its methods, or that of another driver. Their keys are
// otherwise assumed to be on several servers: no script uses several keys that may be on different ones, so takes do
// not go to the server together, and a request over several keys asks one after the other. For a cluster or a Ring the
// option is an error.
func WithOneServer() Option { return func(o *redisclient.Options) { o.OneServer = true } }

// redisStore is a store of logs in sorted sets.
type redisStore struct {
	*redisclient.Conn

	plans redisclient.Recent[planKey, *plan]
	lists redisclient.Recent[listKey, *plan]
}

//go:embed lua
var files embed.FS

var commands = []string{
	"GET", "INCRBY", "PEXPIRE", "PTTL", "SET", "TIME", "UNLINK", "ZADD", "ZCARD", "ZCOUNT", "ZINCRBY", "ZMSCORE",
	"ZRANGE", "ZREM", "ZREMRANGEBYRANK", "ZREMRANGEBYSCORE", "ZSCORE",
}

// The scripts. The head of each file tells its keys, its arguments and its reply.
var (
	pack  = redisclient.NewPackage("redisstore", ":", false, commands, files)
	one   = redisclient.LoadScript(files, "one")
	list  = redisclient.LoadScript(files, "list")
	renew = redisclient.LoadScript(files, "renew")

	settleCounter = redisclient.LoadScript(files, "settle_counter")
)

type planKey struct {
	limit *store.Limit
	mode  store.Mode
	share int
}

type listKey struct {
	limits [store.MostTakes]*store.Limit
	mode   store.Mode
	share  int
}

// New makes a store of a client, which stays yours: its addresses, passwords, TLS and pool are as you set them, and you
// close it. New does no I/O, so a program starts without its Redis. A wrong option or client is an error of [core.New],
// which asks the store to validate.
//
// [core.New]: https://pkg.go.dev/github.com/sashlimit/sash/core#New
func New(client Client, opts ...Option) store.Store {
	return &redisStore{Conn: redisclient.New(pack, client, opts...)}
}

// Check reports whether a store of the same client and options can work on its server, for example when a program
// starts. It returns all problems that it finds, each with a remedy: a server that cannot be reached, is too old,
// evicts keys, is a read-only replica, or is part of a cluster behind a plain client; commands that are renamed, that
// scripts may not call, or that the user may not run. Of a cluster it checks every master, of a Ring every shard that
// is up. It ends with ctx.
//
// Check uses a key of its own, which it removes, and logs a warning about a server that is far away. An eviction policy
// is a problem even if maxmemory is 0, because maxmemory can be changed while the server runs. To see the policy, the
// user must be allowed to run INFO, which the store itself does not need.
func Check(ctx context.Context, client Client, opts ...Option) error {
	c := redisclient.New(pack, client, opts...)
	return c.Check(ctx, func(ctx context.Context, one *redisclient.Conn, number int) error {
		return (&redisStore{Conn: one}).try(ctx, number)
	})
}

// try uses each script on scratch keys, so that each command runs once.
func (s *redisStore) try(ctx context.Context, number int) error {
	key, log, counters := store.NewKey("check", strconv.Itoa(number)), tried[:1], tried[1:]
	take := func(id uint64, mode store.Mode, limits []*store.Limit) error {
		takes := make([]store.Take, len(limits))
		for i, l := range limits {
			takes[i] = store.Take{Key: key, Limit: l, Cost: 1, ID: id, Mode: mode}
		}
		return s.Take(ctx, takes, make([]store.Answer, len(takes)))
	}
	if err := take(1, store.ModeCharge, log); err != nil {
		return err
	}
	_, unlisted := s.Log(ctx, key, log[0])
	return cmp.Or(
		take(2, store.ModeCharge, counters), take(3, store.ModeCharge, counters), take(4, store.ModeChargeDenied, log),
		s.Settle(ctx, store.Settlement{Key: key, Limit: log[0], ID: 4, Was: 3, Cost: 2}),
		s.Renew(ctx, store.Renewal{Key: key, Limit: log[0], IDs: []uint64{5}}),
		unlisted, s.Reset(ctx, key, tried, time.Minute), s.Reset(ctx, key, tried, 0),
	)
}

// tried are limits of all kinds, on logs that last as long as Check.
var tried = []*store.Limit{
	{Log: "log", Quota: 1, Window: time.Minute},
	{Log: "window", Quota: 9, Window: time.Minute, Algorithm: store.FixedWindow},
	{Log: "counter", Quota: 9, Window: time.Minute, Algorithm: store.SlidingCounter},
	{Log: "bucket", Quota: 9, Window: time.Minute, Algorithm: store.TokenBucket, Refill: 9},
}

// Validate implements [store.Store]. The store can serve all limits, any number of them at once, but for buckets that
// take centuries to fill.
func (s *redisStore) Validate(limits ...*store.Limit) error {
	faults := []error{s.Conn.Validate()}
	for _, l := range limits {
		if l.Algorithm == store.TokenBucket && int64(l.Quota) > (1<<53)/(l.Interval()/1000+1) {
			faults = append(faults, &store.ConfigError{
				Option: "TokenBucket", Value: l.String(), Problem: "the bucket takes centuries to fill",
				Remedy: "choose a smaller burst or a faster refill",
			})
		}
	}
	return errors.Join(faults...)
}

// Take implements [store.Store]. One script decides about a request unless its keys may be on several servers.
func (s *redisStore) Take(ctx context.Context, takes []store.Take, answers []store.Answer) error {
	if err := store.ValidateTakes(takes, answers); err != nil {
		return err
	}
	if !s.OneServer() && !takes[0].Key.Equal(&takes[len(takes)-1].Key) {
		return s.takeInTurn(ctx, takes, answers)
	}
	return s.takeAtOnce(ctx, takes, answers)
}

// takeAtOnce has one script decide about a request.
func (s *redisStore) takeAtOnce(ctx context.Context, takes []store.Take, answers []store.Answer) error {
	p := s.plan(takes)
	var space [512]byte
	var ends [store.MostTakes]int
	b := space[:0]
	for i := range takes {
		b = s.AppendKey(b, &takes[i].Key, takes[i].Limit)
		ends[i] = len(b)
	}
	b = p.appendCosts(redisclient.AppendID(b, takes[0].ID), takes)
	q := s.NewQuestion(string(b), ends[:len(takes)]...)
	defer q.Free()
	if err := s.Do(ctx, &p.Plan, q); err != nil {
		return err
	}
	return p.read(q, takes, answers)
}

func (s *redisStore) plan(takes []store.Take) *plan {
	mode, share := takes[0].Mode, takes[0].Share
	if len(takes) == 1 {
		return s.plans.Get(planKey{takes[0].Limit, mode, share}, func() *plan { return newPlan(takes) })
	}
	k := listKey{mode: mode, share: share}
	for i := range takes {
		k.limits[i] = takes[i].Limit
	}
	return s.lists.Get(k, func() *plan { return newPlan(takes) })
}

// Settle implements [store.Settler].
func (s *redisStore) Settle(ctx context.Context, t store.Settlement) error {
	if t.Limit.Permits && t.Cost > 0 {
		return nil // it counts 1 whatever it costs
	} else if !isCounter(t.Limit) {
		return s.Conn.Settle(ctx, t)
	} else if err := t.Key.Validate(); err != nil {
		return err
	}
	key := s.Key(&t.Key, t.Limit)
	keys := []string{key, key + ":" + strconv.FormatUint(t.ID, 36)} // the witness beside the counter
	args := append(arguments(t.Limit), t.Was, t.Cost, t.Period/1000, t.Period%1000)
	_, err := s.Run(ctx, settleCounter, keys, args...)
	return err
}

// Renew implements [store.Renewer].
func (s *redisStore) Renew(ctx context.Context, r store.Renewal) error {
	if err := r.Key.Validate(); err != nil {
		return err
	}
	keys := []string{s.Key(&r.Key, r.Limit)}
	for part := range slices.Chunk(r.IDs, redisclient.AtOnce) {
		args := []any{redisclient.TTL(r.Limit.Window)}
		for _, id := range part {
			args = append(args, string(redisclient.AppendID(nil, id)))
		}
		if _, err := s.Run(ctx, renew, keys, args...); err != nil {
			return err
		}
	}
	return nil
}

// pinged is the limit that pings ask. They have a log of their own.
var pinged = store.Limit{Log: "ping", Quota: store.MaxQuota, Window: time.Millisecond}

// Ping implements [store.Pinger].
func (s *redisStore) Ping(ctx context.Context) error {
	takes := []store.Take{{Limit: &pinged, Cost: 1, ID: rand.Uint64()}}
	return s.takeAtOnce(ctx, takes, make([]store.Answer, 1))
}
