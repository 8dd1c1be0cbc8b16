package redisstream

import (
	"cmp"
	"context"
	"embed"
	"errors"
	"strconv"
	"time"

	"github.com/sashlimit/sash/core/internal/redisclient"
	"github.com/sashlimit/sash/core/store"
)

// Client is the part of a go-redis client that the store needs. *redis.Client, *redis.ClusterClient, *redis.Ring and
// failover clients have it. Clients of other types may need [WithOneServer].
type Client = redisclient.Client

// Option changes a store.
type Option = redisclient.Option

// WithPrefix sets the prefix of every key of the store, before a colon: 1 to 16 characters of [a-z0-9._-]. The default
// is "sash". Stores of package redisstore may have the same prefix: their keys differ nevertheless.
func WithPrefix(prefix string) Option {
	return func(o *redisclient.Options) { o.Prefix = prefix }
}

// WithOneServer says that all keys of the client are on one server. It is for clients of types that are unknown to this
// package, such as one that wraps a go-redis client to change its methods, or that of another driver. Takes on their
// keys do not go to the server together otherwise. For a cluster or a Ring the option is an error.
func WithOneServer() Option { return func(o *redisclient.Options) { o.OneServer = true } }

// streamStore is a store of logs in streams. It has no methods for what these cannot do.
type streamStore struct {
	*redisclient.Conn

	plans redisclient.Recent[planKey, *redisclient.Plan]
}

//go:embed lua
var files embed.FS

var commands = []string{
	"PEXPIRE", "PTTL", "TIME", "UNLINK", "XADD", "XDEL", "XINFO", "XLEN", "XRANGE", "XREVRANGE", "XTRIM",
}

var (
	pack = redisclient.NewPackage("redisstream", ":s", true, commands, files)
	take = redisclient.LoadScript(files, "take")

	// lookUp is what take does if an entry has the instant of the one before.
	lookUp = redisclient.NewScript("return {#redis.call('XINFO', 'STREAM', KEYS[1])}")
)

// New makes a store of a client, which stays yours: its addresses, passwords, TLS and pool are as you set them, and you
// close it. New does no I/O, so a program starts without its Redis. A wrong option or client is an error of [core.New],
// which asks the store to validate.
//
// [core.New]: https://pkg.go.dev/github.com/sashlimit/sash/core#New
func New(client Client, opts ...Option) store.Store {
	return &streamStore{Conn: redisclient.New(pack, client, opts...)}
}

// Check reports whether a store of the same client and options can work on its server, as [redisstore.Check] does.
//
// [redisstore.Check]: https://pkg.go.dev/github.com/sashlimit/sash/core/redisstore#Check
func Check(ctx context.Context, client Client, opts ...Option) error {
	c := redisclient.New(pack, client, opts...)
	return c.Check(ctx, func(ctx context.Context, one *redisclient.Conn, number int) error {
		s := &streamStore{Conn: one}
		key, l := store.NewKey("check", strconv.Itoa(number)), &store.Limit{Log: "log", Quota: 9, Window: time.Minute}
		for id := range uint64(2) {
			takes := []store.Take{{Key: key, Limit: l, Cost: 1, ID: id + 1, Mode: store.ModeChargeDenied}}
			if err := s.Take(ctx, takes, make([]store.Answer, 1)); err != nil {
				return err
			}
		}
		_, err := s.Run(ctx, lookUp, []string{s.Key(&key, l)})
		return cmp.Or(err, s.Settle(ctx, store.Settlement{Key: key, Limit: l, ID: 1, Was: 1}),
			s.Reset(ctx, key, []*store.Limit{l}, 0))
	})
}

// Validate implements [store.Store].
func (s *streamStore) Validate(limits ...*store.Limit) error {
	faults := []error{s.Conn.Validate(), store.OneLog(limits)}
	for _, l := range limits {
		if l.Permits {
			faults = append(faults, &store.ConfigError{
				Option: "InFlight", Problem: "permits cannot be renewed in a stream",
				Remedy: "use a store of package redisstore for requests in flight",
			})
		}
		if l.Leased {
			faults = append(faults, &store.ConfigError{
				Option: "WithLease", Problem: "each entry of a stream is one unit, and a lease takes several",
				Remedy: "leave the option out, or use a store of package redisstore",
			})
		}
	}
	return errors.Join(faults...)
}

func checkCost(cost int) error {
	if cost <= 1 {
		return nil
	}
	return &store.ConfigError{
		Option: "cost", Value: strconv.Itoa(cost), Problem: "each entry of a stream is one unit",
		Remedy: "use package redisstore where requests cost more",
	}
}

type planKey struct {
	limit *store.Limit
	mode  store.Mode
}

var modes = [...]string{
	store.ModeCharge: "c", store.ModePeek: "p", store.ModeRecord: "r", store.ModeChargeDenied: "d",
	store.ModeAtMost: "c", // of one unit
}

func newPlan(l *store.Limit, mode store.Mode) *redisclient.Plan {
	quota, letter := int64(l.Quota), modes[mode]
	if l.Unlimited && mode != store.ModePeek {
		letter = "r"
	} else if l.Unlimited {
		quota = 1 << 53
	}
	p := &redisclient.Plan{
		Script: take, Since: true, Cut: func([]int64, int) int { return numbers },
		Tail: []any{quota, l.Window.Microseconds(), redisclient.TTL(l.Window), letter, l.Keeps(mode)},
	}
	if letter == "c" {
		p.Group = 500
	}
	return p
}

const numbers = 4 // of a reply about one log

// Take implements [store.Store].
func (s *streamStore) Take(ctx context.Context, takes []store.Take, answers []store.Answer) error {
	if err := store.ValidateTakes(takes, answers); err != nil {
		return err
	}
	t := &takes[0]
	if len(takes) > 1 {
		return s.Validate(t.Limit, takes[1].Limit)
	}
	if err := checkCost(t.Cost); err != nil {
		return err
	}
	var space [256]byte
	b := s.AppendKey(space[:0], &t.Key, t.Limit)
	n := len(b)
	q := s.NewQuestion(string(redisclient.AppendID(b, t.ID)), n)
	defer q.Free()
	plan := s.plans.Get(planKey{t.Limit, t.Mode}, func() *redisclient.Plan { return newPlan(t.Limit, t.Mode) })
	if err := s.Do(ctx, plan, q); err != nil {
		return err
	}
	admitted, used, place := q.Reply[0], q.Reply[1], int64(q.Place)
	a := store.Answer{
		Known: true, Allowed: place < admitted, Used: int(used + min(admitted, place)),
		Reset: time.Duration(q.Reply[2]) * time.Microsecond,
	}
	if t.Mode == store.ModePeek {
		a.Allowed = t.Limit.HasRoom(a.Used, 1)
	}
	if !a.Allowed {
		a.Retry = time.Duration(q.Reply[3]) * time.Microsecond
	} else if t.Mode == store.ModeAtMost {
		a.Granted = 1
	}
	if answers[0] = a; a.Used < 0 || a.Reset < 0 || max(a.Reset, a.Retry) > t.Limit.Window+time.Second || a.Retry < 0 {
		return redisclient.ProtocolError("numbers out of range in reply %v", q.Reply)
	}
	return nil
}

// Settle implements [store.Settler] for costs of 0 and 1. A take that is in the log costs 1 already.
func (s *streamStore) Settle(ctx context.Context, t store.Settlement) error {
	if err := checkCost(t.Cost); err != nil {
		return err
	}
	return s.Conn.Settle(ctx, t)
}

// Merge implements [store.Merger] for entries of one unit.
func (s *streamStore) Merge(ctx context.Context, m store.MergeRequest) error {
	for i := range m.Entries {
		if err := checkCost(m.Entries[i].Cost); err != nil {
			return err
		}
	}
	return s.Conn.Merge(ctx, m)
}
