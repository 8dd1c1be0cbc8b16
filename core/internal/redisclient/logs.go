// Package redisclient is what the stores in Redis have in common: how scripts are run by a client of go-redis within a
// deadline (client.go, dial.go, hook.go, silence.go), how takes that wait go to the server together (batcher.go,
// queue.go, sender.go), how they are written and their replies read (take.go, format.go), what errors mean (errors.go),
// and how a server is checked. The packages redisstore and redisstream have the scripts.
package redisclient

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
	"strings"
	"sync"
	"time"

	"github.com/sashlimit/sash/core/store"
)

// Kind is what a package of stores has of its own.
type Kind struct {
	Package

	Begin string // what a key has between the prefix and the text of its store.Key
	// NewFormat returns how the takes of a request are written, and how the replies are read. It keeps nothing of
	// takes.
	NewFormat func(takes []store.Take) Format
	// Other scripts than those of takes. Settle is unset where the package has a method Settle of its own.
	Settle, Entries, Merge, Reset Script
}

// Options are those that all kinds of stores have.
type Options struct {
	Prefix    string // of every key
	Prefixes  int    // how often it was given
	OneServer bool   // all keys of the client are on one server
}

// Logs are the logs of a store.
type Logs struct {
	Conn *Conn // nil if there is no client

	kind     *Kind
	client   Client // as it was given
	prefix   string
	faults   []error  // of the options
	batchers batchers // of takes and bookings

	settlements batchers

	known sync.Map // hashes of scripts, other than those of takes, that the server has run
}

// New returns the logs of a store of that kind.
func New[Option ~func(*Options)](kind *Kind, client Client, opts []Option) *Logs {
	l := &Logs{kind: kind}
	o := Options{Prefix: "sash"}
	for _, option := range opts {
		if option == nil {
			l.fault("New", "nil option", "the option is nil", "leave it out")
			continue
		}
		option(&o)
	}
	if v := reflect.ValueOf(client); !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil() {
		l.fault("New", "nil", "the client is nil",
			`pass a go-redis client, such as redis.NewClient(&redis.Options{Addr: "localhost:6379"})`)
	} else {
		l.client, l.Conn = client, newConn(client)
	}
	if l.prefix = o.Prefix; o.Prefixes > 1 {
		l.fault("WithPrefix", "twice", "the option is given twice, and the first prefix would have no effect",
			"remove one")
	}
	const allowed = "abcdefghijklmnopqrstuvwxyz0123456789._-"
	if l.prefix == "" || len(l.prefix) > 16 || strings.Trim(l.prefix, allowed) != "" {
		l.fault("WithPrefix", strconv.Quote(l.prefix), "the prefix is not valid",
			"use 1 to 16 lower-case letters, digits, '.', '_' or '-'")
	}
	switch {
	case !o.OneServer || l.Conn == nil:
	case l.Conn.pipeline != nil:
		l.fault("WithOneServer", fmt.Sprintf("%T", client), "this client is for several servers",
			"leave the option out")
	default:
		l.Conn.Single = true
	}
	return l
}

func (l *Logs) fault(option, value, problem, remedy string) {
	l.faults = append(l.faults, &store.ConfigError{
		Option: l.kind.Name + "." + option, Value: value, Problem: problem, Remedy: remedy,
	})
}

// warned has the types of clients that were logged.
var warned sync.Map

// WarnOfUnknownClient logs that the client is of a type that is not known, once for each type.
func (l *Logs) WarnOfUnknownClient() {
	if l.Conn == nil || l.Conn.Single || l.Conn.pipeline != nil {
		return
	}
	if _, before := warned.LoadOrStore(reflect.TypeOf(l.client), true); !before {
		slog.Default().Warn("sash: this type of Redis client is unknown, "+
			"so its keys are assumed to be on several servers",
			slog.String("type", fmt.Sprintf("%T", l.client)),
			slog.String("remedy", fmt.Sprintf("pass %s.New the go-redis client itself, or %[1]s.WithOneServer() if "+
				"there is one server; if there are several, ignore this", l.kind.Name)))
	}
}

// LogsOf tells limiters which stores hold the same logs: those of one client and prefix.
func (l *Logs) LogsOf() (client any, prefix string) { return l.client, l.prefix + l.kind.Begin }

// Batches implements [store.Batcher].
func (l *Logs) Batches() store.Batches { return l.batchers.counts.snapshot() }

// Validate returns the faults of the options.
func (l *Logs) Validate() error { return errors.Join(l.faults...) }

// Failed returns an error of the client as a [store.StoreError] with class and advice. It leaves errors of core as they
// are.
func (l *Logs) Failed(err error) error {
	if err == nil || errors.As(err, new(*store.StoreError)) || errors.As(err, new(*store.ConfigError)) {
		return err
	}
	return l.kind.diagnose(err)
}

// CheckCost returns an error for a cost that no entry can have.
func CheckCost(cost int) error {
	if cost <= MaxCost {
		return nil
	}
	return &store.ConfigError{Option: "cost", Value: strconv.Itoa(cost),
		Problem: "the cost is out of range", Remedy: fmt.Sprintf("record at most %d units at once", MaxCost)}
}

// MaxCost is the most units that an entry can have in a log.
const MaxCost = math.MaxInt32

// Take decides about a valid request, unless no script may use all of its logs: then it returns their stored keys.
func (l *Logs) Take(ctx context.Context, takes []store.Take, answers []store.Answer) (apart []string, err error) {
	one, _ := takePool.Get().(*take)
	one.group, one.ids = nil, nil
	one.ctx, one.place = ctx, 0
	l.set(one, takes)
	if len(takes) > 1 && !l.Conn.Single && (l.Conn.together == nil || !l.Conn.together(one.keys)) {
		defer takePool.Put(one)
		return slices.Clone(one.keys), nil
	}
	b := l.batchers.find(l.Conn, l.kind.NewFormat, takes, l.Conn.node(ctx, one.keys[0]))
	if err := b.do(one); err != nil {
		return nil, l.Failed(err)
	}
	defer takePool.Put(one)
	return nil, b.answers(one, takes, answers)
}

// AtOnce is how many entries one run of a script lists, merges or renews, so that it does not keep the server busy for
// long.
const AtOnce = 500

// Log implements [store.Lister]. The log may change between two parts: what was added after the first one is not
// listed.
func (l *Logs) Log(ctx context.Context, key store.Key, window time.Duration) ([]store.Entry, error) {
	entries, after, upTo := make([]store.Entry, 0), int64(0), int64(0)
	for {
		reply, err := l.Run(ctx, l.kind.Entries, &key, window.Microseconds(), AtOnce, after, upTo)
		if err != nil {
			return nil, err
		}
		if len(reply)%2 != 1 {
			return nil, ProtocolError("a log of %d numbers", len(reply))
		}
		for i := 1; i < len(reply); i += 2 {
			units := int(reply[i+1])
			e := store.Entry{At: time.UnixMicro(reply[i]), Cost: max(units, -units), Booked: units < 0}
			entries = append(entries, e)
		}
		if upTo = reply[0]; upTo == 0 {
			return entries, nil
		}
		if len(reply) < 3 || reply[len(reply)-2] <= after {
			return nil, ProtocolError("a part of a log that ends where it begins")
		}
		after = reply[len(reply)-2]
	}
}

// Merge implements [store.Merger].
func (l *Logs) Merge(ctx context.Context, m store.MergeRequest) error {
	varies := ""
	if m.Varies {
		varies = "v"
	}
	for part := range slices.Chunk(m.Entries, AtOnce) {
		args := make([]any, 0, 3+3*len(part))
		args = append(args, m.Keep.Microseconds(), TTL(m.Keep), varies)
		for _, e := range part {
			args = append(args, IDText(e.ID), e.Age.Microseconds(), min(e.Cost, MaxCost))
		}
		if _, err := l.Run(ctx, l.kind.Merge, &m.Key, args...); err != nil {
			return err
		}
	}
	return nil
}

// Reset implements [store.Store].
func (l *Logs) Reset(ctx context.Context, key store.Key) error {
	_, err := l.Run(ctx, l.kind.Reset, &key)
	return err
}

// Run runs a script other than those of takes.
func (l *Logs) Run(ctx context.Context, sc Script, key *store.Key, args ...any) ([]int64, error) {
	if err := key.Validate(); err != nil {
		return nil, err
	}
	return l.RunOn(ctx, sc, l.Key(key), args...)
}

// RunOn is Run with the stored key.
func (l *Logs) RunOn(ctx context.Context, sc Script, key string, args ...any) ([]int64, error) {
	q := newCall(sc, 1, len(args))
	err := l.run(ctx, &q, key, args...)
	return q.reply, err
}

func (l *Logs) run(ctx context.Context, q *call, key string, args ...any) error {
	q.args[keysAt] = key
	copy(q.args[keysAt+1:], args)
	if node := l.Conn.node(ctx, key); node != nil {
		q.abandoned = l.settlements.find(l.Conn, l.settleFormat, make([]store.Take, 1), node).abandoned
	}
	_, known := l.known.Load(q.script.hash)
	if !known { // the server would need a round trip to say that it does not know the hash
		q.byText()
	}
	err := l.Conn.do(ctx, q)
	if err = cmp.Or(err, q.err); err == nil && !known {
		l.known.Store(q.script.hash, true)
	}
	return l.Failed(err)
}

// Key returns the stored key.
func (l *Logs) Key(k *store.Key) string {
	var space [128]byte
	return string(l.appendKey(space[:0], k))
}

func (l *Logs) appendKey(b []byte, k *store.Key) []byte {
	return k.AppendTo(append(append(b, l.prefix...), l.kind.Begin...))
}

// set sets what the scripts know of a request. Keys, id and costs share one allocation.
func (l *Logs) set(one *take, takes []store.Take) {
	var space [512]byte
	var ends [store.MaxLimits]int
	b := space[:0]
	for i := range takes {
		b = l.appendKey(b, &takes[i].Key)
		ends[i] = len(b)
		b = append(b, ' ') // which no key has
	}
	n := len(b) - 1
	all := string(appendCosts(binary.BigEndian.AppendUint64(b, takes[0].ID), takes))
	one.key, one.argument, one.keys = all[:n], all[n+1:], one.space[:0]
	begin := 0
	for _, end := range ends[:len(takes)] {
		one.keys = append(one.keys, all[begin:end])
		begin = end + 1
	}
}
