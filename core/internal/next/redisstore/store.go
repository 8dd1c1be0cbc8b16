package redisstore

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/sashlimit/sash/core/internal/next/redisclient"
	"github.com/sashlimit/sash/core/internal/next/store"
)

// Client is the part of a go-redis client that the store needs. *redis.Client, *redis.ClusterClient, *redis.Ring and
// failover clients have it. Clients of other types may need [WithOneServer].
type Client = redisclient.Client

// Option changes a store.
type Option func(*redisclient.Options)

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

	plans  redisclient.Recent[planKey, *plan]
	lists  redisclient.Recent[listKey, *plan]
	prefix string

	settling sync.Map // logs and IDs of takes that are being settled, each with a channel that is closed when it was
}

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
func New(client Client, opts ...Option) store.Store {
	o := redisclient.Options{Prefix: "sash"}
	for _, option := range opts {
		option(&o)
	}
	s := &redisStore{Conn: redisclient.New(&redisclient.Package{Name: "redisstore", Commands: commands}, client, o)}
	s.prefix = s.Prefix() + ":{"
	s.WarnOfUnknownClient()
	return s
}

var commands = []string{
	"GET", "PEXPIRE", "PTTL", "SET", "TIME", "UNLINK", "ZADD", "ZCARD", "ZCOUNT", "ZMSCORE", "ZRANGE", "ZREM",
	"ZREMRANGEBYRANK", "ZREMRANGEBYSCORE", "ZSCORE",
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

// appendKey appends the name of a log in Redis. The braces keep all logs of a key on one server of a cluster.
func (s *redisStore) appendKey(b []byte, k *store.Key, l *store.Limit) []byte {
	b = k.AppendTo(append(b, s.prefix...))
	b = append(b, "}:"...)
	return append(b, l.Log...)
}

func (s *redisStore) key(k *store.Key, l *store.Limit) string {
	var space [192]byte
	return string(s.appendKey(space[:0], k, l))
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
		b = s.appendKey(b, &takes[i].Key, takes[i].Limit)
		ends[i] = len(b)
	}
	b = p.appendCosts(binary.BigEndian.AppendUint64(b, takes[0].ID), takes)
	q := redisclient.NewQuestion(string(b), ends[:len(takes)]...)
	defer q.Free()
	if err := s.Do(ctx, &p.Plan, q); err != nil {
		return err
	}
	return s.Failed(p.read(q, takes, answers))
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

// settlePlan is the plan of settlements of logs.
var settlePlan = redisclient.Plan{Script: settle, Cut: func([]int64, int) int { return 1 }}

// Settle implements [store.Settler]. Settlements of one take follow each other.
func (s *redisStore) Settle(ctx context.Context, t store.Settlement) error {
	if err := t.Key.Validate(); err != nil {
		return err
	}
	if t.Limit.Permits && t.Cost > 0 {
		return nil // it counts 1 whatever it costs
	}
	key := s.key(&t.Key, t.Limit)
	b := appendChange([]byte(key), t.ID, t.Was, t.Cost, t.Age)
	take, done := string(b[:len(key)+8]), make(chan struct{})
	for {
		other, busy := s.settling.LoadOrStore(take, done)
		if !busy {
			break
		}
		select {
		case <-other.(chan struct{}): //nolint:forcetypeassert // see above
		case <-ctx.Done():
			return s.Failed(ctx.Err())
		}
	}
	defer close(done)
	defer s.settling.Delete(take)
	if isCounter(t.Limit) {
		return s.settleCounter(ctx, key, &t)
	}
	if t.Age >= t.Limit.Window {
		b = b[:len(b)-8] // without the age, the log is not searched
	}
	q := redisclient.NewQuestion(string(b), len(key))
	defer q.Free()
	return s.Do(ctx, &settlePlan, q)
}

func (s *redisStore) settleCounter(ctx context.Context, key string, t *store.Settlement) error {
	witness := key + ":" + strconv.FormatUint(t.ID, 36)
	args := append(arguments(t.Limit), t.Was, t.Cost, t.Period/1000, t.Period%1000)
	_, err := s.Run(ctx, settleCounter, []string{key, witness}, args...)
	return err
}

// atOnce is how many entries one run of a script lists, merges or renews, so that it does not keep the server busy for
// long.
const atOnce = 500

// Merge implements [store.Merger].
func (s *redisStore) Merge(ctx context.Context, m store.MergeRequest) error {
	if err := m.Key.Validate(); err != nil {
		return err
	}
	key := s.key(&m.Key, m.Limit)
	for part := range slices.Chunk(m.Entries, atOnce) {
		keys := make([]string, 0, len(part))
		args := make([]any, 0, len(part)+2)
		for _, e := range part {
			keys = append(keys, key)
			args = append(args, string(appendChange(nil, e.ID, cmp.Or(e.Sent, e.Cost), e.Cost, e.Age)))
		}
		args = append(args, m.Limit.Window.Microseconds(), ttl(m.Limit))
		if _, err := s.Run(ctx, settle, keys, args...); err != nil {
			return err
		}
	}
	return nil
}

// appendChange appends the argument of the script settle for one take.
func appendChange(b []byte, id uint64, was, cost int, age time.Duration) []byte {
	b = appendUnits(appendUnits(binary.BigEndian.AppendUint64(b, id), was), cost)
	return binary.BigEndian.AppendUint64(b, uint64(max(age, 0).Microseconds()))
}

// Renew implements [store.Renewer].
func (s *redisStore) Renew(ctx context.Context, r store.Renewal) error {
	if err := r.Key.Validate(); err != nil {
		return err
	}
	keys := []string{s.key(&r.Key, r.Limit)}
	for part := range slices.Chunk(r.IDs, atOnce) {
		args := []any{ttl(r.Limit)}
		for _, id := range part {
			args = append(args, string(binary.BigEndian.AppendUint64(nil, id)))
		}
		if _, err := s.Run(ctx, renew, keys, args...); err != nil {
			return err
		}
	}
	return nil
}

// Log implements [store.Lister]. The log may change between two parts.
func (s *redisStore) Log(ctx context.Context, key store.Key, l *store.Limit) ([]store.Entry, error) {
	if err := key.Validate(); err != nil {
		return nil, err
	}
	keys, all, last, same := []string{s.key(&key, l)}, make([]store.Entry, 0), int64(0), 0
	for {
		reply, err := s.Run(ctx, entries, keys, l.Window.Microseconds(), last, same, atOnce)
		if err != nil {
			return nil, err
		}
		if len(reply)%2 != 0 {
			return nil, s.Failed(redisclient.ProtocolError("a log of %d numbers", len(reply)))
		}
		for i := 0; i < len(reply); i += 2 {
			if reply[i] != last {
				last, same = reply[i], 0
			}
			same++
			all = append(all, store.Entry{At: time.UnixMicro(last), Cost: int(reply[i+1])})
		}
		if len(reply) < 2*atOnce {
			return all, nil
		}
	}
}

// Reset implements [store.Store].
func (s *redisStore) Reset(ctx context.Context, key store.Key, limits []*store.Limit, young time.Duration) error {
	if err := key.Validate(); err != nil || len(limits) == 0 {
		return err
	}
	var keys []string
	var ages []any
	for _, l := range limits {
		keys = append(keys, s.key(&key, l))
		age := max(young, 0).Microseconds()
		if isCounter(l) {
			age = 0
		}
		ages = append(ages, age)
	}
	_, err := s.Run(ctx, reset, keys, ages...)
	return err
}
