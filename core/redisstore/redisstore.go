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

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/sashlimit/sash/core"
)

// What a log in Redis may hold. A full log of 100,000 takes about 11 MB there.
const (
	MaxQuota = 100_000
	MaxCost  = 10_000
)

// Option changes a store.
type Option func(*store)

// WithPrefix begins every key of the store, before a colon: 1 to 16 of
// [a-z0-9._-]. The default is "sash". Use it to tell apart services that share a Redis.
func WithPrefix(prefix string) Option {
	return func(s *store) { s.prefix = prefix }
}

// New makes a store of a client, which stays yours: its addresses, passwords,
// TLS and pool are as you set them, and you close it. Hooks that it has by now see what the store sends. New does no
// I/O, so a program starts without its Redis.
func New(client Client, opts ...Option) core.Store {
	s := &store{prefix: "sash"}
	if !isNil(client) {
		s.client, s.conn = client, newConn(client)
	}
	for _, o := range opts {
		if o == nil {
			s.fault = &core.ConfigError{Option: "redisstore.New", Value: "nil option", Reason: "leave it out"}
			continue
		}
		o(s)
	}
	return s
}

type store struct {
	client Client // as it was given
	conn   *conn  // nil when there is no client
	prefix string
	fault  error
	lanes  lanes
	known  sync.Map // names of scripts other than that of takes that have been run
}

func (s *store) Validate(limits core.Limits) error {
	faults := []error{s.fault}
	if s.conn == nil {
		faults = append(faults, &core.ConfigError{Option: "redisstore.New", Value: "nil", Reason: "give it a go-redis client, such as redis.NewClient(&redis.Options{Addr: \"localhost:6379\"})"})
	}
	if !validPrefix(s.prefix) {
		faults = append(faults, &core.ConfigError{Option: "redisstore.WithPrefix", Value: strconv.Quote(s.prefix), Reason: "a prefix is 1 to 16 lower-case letters, digits, '.', '_' or '-'"})
	}
	for _, l := range limits {
		if l.Quota > MaxQuota {
			faults = append(faults, &core.ConfigError{Option: "limits", Value: l.String(), Reason: fmt.Sprintf("Redis keeps an entry for each unit: a quota there is at most %d; use a shorter window", MaxQuota)})
		}
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

func (s *store) Take(ctx context.Context, t core.Take) (core.Answer, error) {
	if t.Cost > MaxCost && fits(t) {
		return core.Answer{}, costError(t.Cost)
	}
	one, _ := takes.Get().(*take)
	one.ctx, one.cost, one.place = ctx, min(t.Cost, MaxQuota+1), 0
	one.key, one.id = s.keyAndID(&t.Key, t.ID)
	var node any
	if s.conn.node != nil {
		node = s.conn.node(ctx, one.key)
	}
	l := s.lane(&t, node)
	if err := l.ask(one); err != nil {
		return core.Answer{}, failed(err)
	}
	defer takes.Put(one)
	return l.answer(one, &t)
}

func costError(cost int) error {
	return &core.ConfigError{Option: "cost", Value: strconv.Itoa(cost), Reason: fmt.Sprintf("redisstore records at most %d units at once", MaxCost)}
}

// ttl is one second above the window: Redis counts a TTL from the start of the script, in
// milliseconds, and an entry must not go before it leaves.
func ttl(keep time.Duration) int64 { return keep.Milliseconds() + 1000 }

// modeText is how take.lua reads a take's mode.
func modeText(t *core.Take) string {
	i := 2 * int(t.Mode)
	if t.Varies {
		return "vcvpvrvd"[i : i+2]
	}
	return "vcvpvrvd"[i+1 : i+2]
}

// idLength is that of a take's id in a log.
const idLength = 8

func idText(id uint64) string {
	var b [idLength]byte
	binary.BigEndian.PutUint64(b[:], id)
	return string(b[:])
}

// fits reports whether the cost is within every quota, so that the take could be recorded.
func fits(t core.Take) bool {
	for i := range t.Limits[:len(t.Limits)-t.Shadow] {
		if t.Cost > t.Limits[i].Quota {
			return t.Mode == core.ModeRecord
		}
	}
	return true
}

func (l *lane) answer(one *take, t *core.Take) (core.Answer, error) {
	if len(one.reply) == l.plain {
		return plainAnswer(one.reply, t)
	}
	return answer(one, t)
}

// plainAnswer reads an answer of one number for each limit.
func plainAnswer(reply []int64, t *core.Take) (a core.Answer, err error) {
	a.Allowed = slices.Min(reply) > 0
	for i, told := range reply {
		limit := &t.Limits[i]
		span := limit.Window.Microseconds() + 1
		used, reset := (max(told, -told)-1)/span, time.Duration((max(told, -told)-1)%span)*time.Microsecond
		good := told > 0 && used < int64(limit.Quota) || told < 0 && used == int64(limit.Quota)
		if !good || reset == 0 && (used > 0 || a.Allowed) {
			return core.Answer{}, protocolError("numbers out of range in reply %v", reply)
		}
		if a.State[i] = (core.State{Used: int(used), Reset: reset}); told < 0 {
			a.Retry = max(a.Retry, reset)
		}
	}
	return a, nil
}

// answer believes nothing: the key may have been written by somebody else, and
// the server may be something else. The first of equal takes were admitted.
func answer(one *take, t *core.Take) (a core.Answer, err error) {
	reply, deciding, head := one.reply, len(t.Limits)-t.Shadow, 2+min(t.Shadow, 1)
	if len(reply) != head+2*len(t.Limits) {
		return a, protocolError("a reply of %d numbers to %d limits", len(reply), len(t.Limits))
	}
	admitted, wait, shadow, keep := reply[0], reply[1], reply[head-1], t.Keep.Microseconds()
	good := admitted >= 0 && admitted <= int64(one.takes) && (wait == 0) == (admitted == int64(one.takes)) &&
		wait >= -1 && wait <= keep && shadow >= -1 && shadow <= keep
	if a.Allowed = int64(one.place) < admitted; !a.Allowed {
		a.Retry = time.Duration(max(wait, 0)) * time.Microsecond
	}
	if t.Shadow > 0 {
		a.Shadow = time.Duration(max(shadow, 0)) * time.Microsecond
	}
	before := min(admitted, int64(one.place)) * int64(t.Cost) // of this one's equals
	denies := t.Mode == core.ModeRecord
	for i := range t.Limits {
		used, reset := reply[head+2*i], reply[head+1+2*i]
		good = good && used >= 0 && used < 1<<31 && reset >= 0 && reset <= t.Limits[i].Window.Microseconds()
		used += before
		denies = denies || i < deciding && used+int64(t.Cost) > int64(t.Limits[i].Quota)
		a.State[i] = core.State{Used: int(used), Reset: time.Duration(reset) * time.Microsecond}
	}
	if !good || !a.Allowed && !denies {
		return core.Answer{}, protocolError("numbers out of range in reply %v", reply)
	}
	return a, nil
}

func (s *store) Settle(ctx context.Context, t core.Settle) error {
	if t.Cost > MaxCost {
		return costError(t.Cost)
	}
	_, err := s.ask(ctx, settleScript, &t.Key, idText(t.ID), t.Cost)
	return err
}

func (s *store) Log(ctx context.Context, key core.StorageKey, window time.Duration) ([]core.Entry, error) {
	reply, err := s.ask(ctx, entriesScript, &key, window.Microseconds())
	if err != nil {
		return nil, err
	}
	if len(reply)%2 != 0 {
		return nil, protocolError("a log of %d numbers", len(reply))
	}
	entries := make([]core.Entry, 0, len(reply)/2)
	for i := 0; i < len(reply); i += 2 {
		entries = append(entries, core.Entry{At: time.UnixMicro(reply[i]), Cost: int(reply[i+1])})
	}
	return entries, nil
}

// maxUnits is how many a take can have in a log, where two bytes number them.
const maxUnits = 1 << 16

// mergedAtOnce is how many entries one script adds, so that none keeps the server busy for long.
const mergedAtOnce = 500

func (s *store) Merge(ctx context.Context, m core.Merge) error {
	varies := ""
	if m.Varies {
		varies = "v"
	}
	for part := range slices.Chunk(m.Entries, mergedAtOnce) {
		args := make([]any, 0, 3+3*len(part))
		args = append(args, m.Keep.Microseconds(), ttl(m.Keep), varies)
		for _, e := range part {
			args = append(args, idText(e.ID), e.Age.Microseconds(), min(e.Cost, maxUnits))
		}
		if _, err := s.ask(ctx, mergeScript, &m.Key, args...); err != nil {
			return err
		}
	}
	return nil
}

func (s *store) Reset(ctx context.Context, key core.StorageKey) error {
	_, err := s.ask(ctx, resetScript, &key)
	return err
}

// ask runs a script that is not a take.
func (s *store) ask(ctx context.Context, sc script, key *core.StorageKey, args ...any) ([]int64, error) {
	q := newQuestion(sc, 1, len(args))
	q.args[keysAt] = s.key(key)
	copy(q.args[keysAt+1:], args)
	_, known := s.known.Load(sc.hash)
	if !known { // by its name the server does not know it yet, and to say so takes it a round trip
		q.byText()
	}
	if err := cmp.Or(s.conn.ask(ctx, &q), q.err); err != nil {
		return nil, failed(err)
	}
	if !known {
		s.known.Store(sc.hash, true)
	}
	return q.reply, nil
}

func (s *store) key(k *core.StorageKey) string {
	key, _ := s.keyAndID(k, 0)
	return key
}

// keyAndID are one text, because each take needs both.
func (s *store) keyAndID(k *core.StorageKey, id uint64) (string, string) {
	var space [128 + idLength]byte
	b := k.AppendTo(append(append(space[:0], s.prefix...), ':'))
	n := len(b)
	all := string(binary.BigEndian.AppendUint64(b, id))
	return all[:n], all[n:]
}
