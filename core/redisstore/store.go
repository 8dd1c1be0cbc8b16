package redisstore

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"reflect"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/sashlimit/sash/core/store"
)

// maxCost is the most units that an entry can have in a log.
const maxCost = math.MaxInt32

// Option changes a store.
type Option func(*redisStore)

// WithPrefix sets the prefix of every key of the store, before a colon: 1 to 16 characters of [a-z0-9._-]. The default
// is "sash". Use it to tell apart services that share a Redis.
func WithPrefix(prefix string) Option {
	return func(s *redisStore) {
		if s.prefixGiven {
			s.faults = append(s.faults, &store.ConfigError{Option: "redisstore.WithPrefix", Value: "twice",
				Problem: "the option is given twice, and the first prefix would have no effect", Remedy: "remove one"})
		}
		s.prefix, s.prefixGiven = prefix, true
	}
}

// WithOneServer says that all keys of the client are on one server. It is for clients of types that this package does
// not know, such as one that wraps a go-redis client to change its methods, or that of another driver. Their keys are
// otherwise taken to be on several servers: no script uses several of them, so takes do not go to the server together,
// and a request over several logs asks one after the other. For a cluster or a Ring the option is an error.
func WithOneServer() Option {
	return func(s *redisStore) {
		switch {
		case s.conn == nil:
		case s.conn.pipeline != nil:
			s.faults = append(s.faults, &store.ConfigError{Option: "redisstore.WithOneServer",
				Value: fmt.Sprintf("%T", s.client), Problem: "this client is for several servers",
				Remedy: "leave the option out"})
		default:
			s.conn.single = true
		}
	}
}

// New makes a store of a client, which stays yours: its addresses, passwords, TLS and pool are as you set them, and you
// close it. Hooks that the client has when New is called see what the store sends. New does no I/O, so a program starts
// without its Redis. A wrong option or client is an error of [core.New], which asks the store to validate.
func New(client Client, opts ...Option) store.Store {
	s := newStore(client, opts)
	s.warnOfUnknownClient()
	if s.batchers.stream {
		return &streamStore{s}
	}
	return s
}

func newStore(client Client, opts []Option) *redisStore {
	s := &redisStore{prefix: "sash", undoTimeout: time.Second}
	if !isNil(client) {
		s.client, s.conn = client, newConn(client)
	}
	for _, o := range opts {
		if o == nil {
			s.faults = append(s.faults, &store.ConfigError{
				Option: "redisstore.New", Value: "nil option", Problem: "the option is nil", Remedy: "leave it out",
			})
			continue
		}
		o(s)
	}
	return s
}

// warned has the types of clients that were logged.
var warned sync.Map

// warnOfUnknownClient logs that the store does not know a client's type, once for each type.
func (s *redisStore) warnOfUnknownClient() {
	if s.conn == nil || s.conn.single || s.conn.pipeline != nil {
		return
	}
	if _, before := warned.LoadOrStore(reflect.TypeOf(s.client), true); !before {
		slog.Default().Warn("sash: the type of the Redis client is not known, "+
			"so its keys are taken to be on several servers",
			slog.String("type", fmt.Sprintf("%T", s.client)),
			slog.String("remedy", "give redisstore.New the go-redis client itself, or redisstore.WithOneServer() if "+
				"there is one server; if there are several, nothing is wrong"))
	}
}

type redisStore struct {
	client      Client // as it was given
	conn        *conn  // nil if there is no client
	prefix      string
	prefixGiven bool
	faults      []error // of the options
	batchers    batchers
	known       sync.Map      // hashes of scripts, other than that of takes, that the server has run
	undoTimeout time.Duration // of removals of units, which go on when the caller's context has ended
}

// LogsOf tells limiters which stores hold the same logs: those of one client and prefix.
func (s *redisStore) LogsOf() (client any, prefix string) { return s.client, s.prefix }

// Batches implements [store.Batcher].
func (s *redisStore) Batches() store.Batches { return s.batchers.counts.snapshot() }

func (s *redisStore) Validate(*store.Plan) error {
	faults := slices.Clip(s.faults)
	if s.conn == nil {
		faults = append(faults, &store.ConfigError{Option: "redisstore.New", Value: "nil", Problem: "the client is nil",
			Remedy: `pass a go-redis client, such as redis.NewClient(&redis.Options{Addr: "localhost:6379"})`})
	}
	if !validPrefix(s.prefix) {
		faults = append(faults, &store.ConfigError{Option: "redisstore.WithPrefix", Value: strconv.Quote(s.prefix),
			Problem: "the prefix is not valid", Remedy: "use 1 to 16 lower-case letters, digits, '.', '_' or '-'"})
	}
	return errors.Join(faults...)
}

func validPrefix(s string) bool {
	for i := range len(s) {
		c := s[i]
		if !('a' <= c && c <= 'z' || '0' <= c && c <= '9' || c == '.' || c == '_' || c == '-') {
			return false
		}
	}
	return s != "" && len(s) <= 16
}

// Counts implements [store.Counter]: it has all algorithms.
func (s *redisStore) Counts(a store.Algorithm) bool { return a <= store.TokenBucket }

func (s *redisStore) Take(ctx context.Context, t store.Take) (store.Answer, error) {
	if err := t.Validate(); err != nil {
		return store.Answer{}, err
	}
	if t.Cost > maxCost {
		return store.Answer{}, costError(t.Cost)
	}
	return s.take(ctx, t)
}

// take is Take for a valid take.
func (s *redisStore) take(ctx context.Context, t store.Take) (store.Answer, error) {
	asked := t.Cost
	t.Cost, t.Mode = t.Plan.Counted(t.Cost, t.Mode)
	one, _ := takePool.Get().(*take)
	one.ctx, one.cost, one.place, one.keys = ctx, t.Cost, 0, nil
	one.key, one.id = s.keyAndID(&t.Key, t.ID)
	var node any
	if s.conn.node != nil {
		node = s.conn.node(ctx, one.key)
	}
	b := s.batchers.of(&t, nil, s.conn, node)
	if err := b.do(one); err != nil {
		return store.Answer{}, failed(err)
	}
	defer takePool.Put(one)
	a, err := b.answer(one, &t)
	if a.Granted > 0 && t.Plan.Slots {
		a.Granted = asked // one slot is enough for all
	}
	return a, err
}

func costError(cost int) error {
	return &store.ConfigError{Option: "cost", Value: strconv.Itoa(cost),
		Problem: "the cost is out of range", Remedy: fmt.Sprintf("record at most %d units at once", maxCost)}
}

func (s *redisStore) Settle(ctx context.Context, t store.Settlement) error {
	if t.Cost > maxCost {
		return costError(t.Cost)
	}
	_, err := s.run(ctx, settleScript, &t.Key, idText(t.ID), t.Cost)
	return err
}

func (s *redisStore) Log(ctx context.Context, key store.Key, window time.Duration) ([]store.Entry, error) {
	return s.log(ctx, entriesScript, key, window)
}

// listedAtOnce is how many entries one run of a script lists, so that it does not keep the server busy for long.
const listedAtOnce = 500

// log is Log by that script. The log may change between two parts: what was added after the first one is not listed.
func (s *redisStore) log(
	ctx context.Context, sc script, key store.Key, window time.Duration,
) ([]store.Entry, error) {
	entries, after, upTo := make([]store.Entry, 0), int64(0), int64(0)
	for {
		reply, err := s.run(ctx, sc, &key, window.Microseconds(), listedAtOnce, after, upTo)
		if err != nil {
			return nil, err
		}
		if len(reply)%2 != 1 {
			return nil, protocolError("a log of %d numbers", len(reply))
		}
		for i := 1; i < len(reply); i += 2 {
			entries = append(entries, store.Entry{At: time.UnixMicro(reply[i]), Cost: int(reply[i+1])})
		}
		if upTo = reply[0]; upTo == 0 {
			return entries, nil
		}
		if len(reply) < 3 || reply[len(reply)-2] <= after {
			return nil, protocolError("a part of a log that ends where it begins")
		}
		after = reply[len(reply)-2]
	}
}

// mergedAtOnce is how many entries one run of the script adds, so that it does not keep the server busy for long.
const mergedAtOnce = 500

func (s *redisStore) Merge(ctx context.Context, m store.MergeRequest) error {
	return s.merge(ctx, mergeScript, m)
}

// merge is Merge by that script.
func (s *redisStore) merge(ctx context.Context, sc script, m store.MergeRequest) error {
	varies := ""
	if m.Varies {
		varies = "v"
	}
	for part := range slices.Chunk(m.Entries, mergedAtOnce) {
		args := make([]any, 0, 3+3*len(part))
		args = append(args, m.Keep.Microseconds(), ttl(m.Keep), varies)
		for _, e := range part {
			args = append(args, idText(e.ID), e.Age.Microseconds(), min(e.Cost, maxCost))
		}
		if _, err := s.run(ctx, sc, &m.Key, args...); err != nil {
			return err
		}
	}
	return nil
}

func (s *redisStore) Reset(ctx context.Context, key store.Key) error {
	_, err := s.run(ctx, resetScript, &key)
	return err
}

// run runs a script other than that of takes.
func (s *redisStore) run(ctx context.Context, sc script, key *store.Key, args ...any) ([]int64, error) {
	if err := key.Validate(); err != nil {
		return nil, err
	}
	return s.runOn(ctx, sc, s.key(key), args...)
}

// runOn is run with the stored key.
func (s *redisStore) runOn(ctx context.Context, sc script, key string, args ...any) ([]int64, error) {
	q := newCall(sc, 1, len(args))
	q.args[keysAt] = key
	copy(q.args[keysAt+1:], args)
	_, known := s.known.Load(sc.hash)
	if !known { // the server would need a round trip to say that it does not know the hash
		q.byText()
	}
	if err := cmp.Or(s.conn.do(ctx, &q), q.err); err != nil {
		return nil, failed(err)
	}
	if !known {
		s.known.Store(sc.hash, true)
	}
	return q.reply, nil
}

func (s *redisStore) key(k *store.Key) string {
	key, _ := s.keyAndID(k, 0)
	return key
}

// keyAndID returns the stored key and the text of the id. They share one allocation, because each take needs both.
func (s *redisStore) keyAndID(k *store.Key, id uint64) (string, string) {
	var space [128 + idLength]byte
	b := k.AppendTo(append(append(space[:0], s.prefix...), ':'))
	n := len(b)
	all := string(binary.BigEndian.AppendUint64(b, id))
	return all[:n], all[n:]
}
