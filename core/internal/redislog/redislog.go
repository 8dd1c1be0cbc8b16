// Package redislog is what the stores in Redis do with logs beside deciding takes. Their scripts differ, but have the
// same arguments and replies.
package redislog

import (
	"cmp"
	"context"
	"embed"
	"encoding/binary"
	"math"
	"regexp"
	"slices"
	"time"

	"github.com/sashlimit/sash/core/internal/redisclient"
	"github.com/sashlimit/sash/core/store"
)

// Kind is how a package of stores keeps logs.
type Kind struct {
	of                     redisclient.Package
	begin                  string // what a key has between the prefix and the text of its store.Key
	settle, entries, reset *redisclient.Script
}

// NewKind returns a kind of logs by its files of Lua, among them settle, entries and reset.
func NewKind(of redisclient.Package, begin string, files embed.FS) *Kind {
	return &Kind{of, begin, NewScript(files, "settle"), NewScript(files, "entries"), NewScript(files, "reset")}
}

// Logs are the logs of a store.
type Logs struct {
	*redisclient.Conn
	*Kind

	changes redisclient.Plan
}

// Open returns the logs that a client has access to.
func (k *Kind) Open(client redisclient.Client, opts []redisclient.Option) *Logs {
	return k.On(redisclient.New(&k.of, client, opts...))
}

// On returns the logs that a connection has access to.
func (k *Kind) On(c *redisclient.Conn) *Logs {
	one := func([]int64, int) int { return 1 }
	return &Logs{Conn: c, Kind: k, changes: redisclient.Plan{Script: k.settle, Cut: one}}
}

var (
	include = regexp.MustCompile(`(?m)^-- include (\w+)\n`) // a line that stands for another file
	comment = regexp.MustCompile(`(?m)^ *(--.*)?\n`)        // a line that does nothing
)

//go:embed lua/clock.lua
var clock string

// NewScript returns the script that a file of Lua is, with the files that it includes, without comments but for its
// name.
func NewScript(files embed.FS, name string) *redisclient.Script {
	read := func(name string) string {
		if name == "clock" {
			return clock
		}
		text, err := files.ReadFile("lua/" + name + ".lua")
		if err != nil {
			panic(err) //nolint:forbidigo // the file is missing in the package
		}
		return string(text)
	}
	text := include.ReplaceAllStringFunc(read(name), func(line string) string {
		return read(include.FindStringSubmatch(line)[1])
	})
	return redisclient.NewScript("-- " + name + "\n" + comment.ReplaceAllLiteralString(text, ""))
}

// AppendKey appends the name of a log in Redis. The braces keep all logs of a key on one server of a cluster.
func (s *Logs) AppendKey(b []byte, k *store.Key, l *store.Limit) []byte {
	b = append(append(b, s.Prefix()...), s.begin...)
	b = append(k.AppendTo(append(b, '{')), "}:"...)
	return append(b, l.Log...)
}

// Key returns the name of a log in Redis.
func (s *Logs) Key(k *store.Key, l *store.Limit) string {
	var space [192]byte
	return string(s.AppendKey(space[:0], k, l))
}

// TTL is the TTL of a log in milliseconds. It is one second more than the window, since Redis counts a TTL from the
// start of the script in milliseconds, and the log must not expire before its entries.
func TTL(l *store.Limit) int64 { return l.Window.Milliseconds() + 1000 }

// AppendID appends the ID of a take as scripts have it in an argument, and logs in an entry.
func AppendID(b []byte, id uint64) []byte { return binary.BigEndian.AppendUint64(b, id) }

// AppendUnits does this for a number of units.
func AppendUnits(b []byte, n int) []byte {
	return binary.BigEndian.AppendUint32(b, uint32(min(max(n, 0), math.MaxInt32)))
}

// appendChange appends the argument of the script settle for one take.
func appendChange(b []byte, id uint64, was, cost int, age time.Duration) []byte {
	b = AppendUnits(AppendUnits(AppendID(b, id), was), cost)
	return binary.BigEndian.AppendUint64(b, uint64(max(age, 0).Microseconds()))
}

// Settle implements [store.Settler] for sliding logs. The guard sends one settlement of a take at a time.
func (s *Logs) Settle(ctx context.Context, t store.Settlement) error {
	if err := t.Key.Validate(); err != nil {
		return err
	}
	key := s.Key(&t.Key, t.Limit)
	b := appendChange([]byte(key), t.ID, t.Was, t.Cost, t.Age)
	if t.Age >= t.Limit.Window+time.Second { // ages are a second wrong at most
		b = b[:len(b)-8] // without the age, the log is not searched
	}
	q := s.NewQuestion(string(b), len(key))
	defer q.Free()
	return s.Do(ctx, &s.changes, q)
}

// AtOnce is how many entries one run of a script lists, merges or renews, so that it does not keep the server busy for
// long.
const AtOnce = 500

// Merge implements [store.Merger].
func (s *Logs) Merge(ctx context.Context, m store.MergeRequest) error {
	if err := m.Key.Validate(); err != nil {
		return err
	}
	key := s.Key(&m.Key, m.Limit)
	for part := range slices.Chunk(m.Entries, AtOnce) {
		args := make([]any, 0, len(part)+2)
		for _, e := range part {
			args = append(args, string(appendChange(nil, e.ID, cmp.Or(e.Sent, e.Cost), e.Cost, e.Age)))
		}
		args = append(args, m.Limit.Window.Microseconds(), TTL(m.Limit))
		if _, err := s.Run(ctx, s.settle, slices.Repeat([]string{key}, len(part)), args...); err != nil {
			return err
		}
	}
	return nil
}

// Log implements [store.Lister]. The log may change between two parts.
func (s *Logs) Log(ctx context.Context, key store.Key, l *store.Limit) ([]store.Entry, error) {
	if err := key.Validate(); err != nil {
		return nil, err
	}
	keys, all, last, same := []string{s.Key(&key, l)}, make([]store.Entry, 0), int64(0), 0
	for {
		reply, err := s.Run(ctx, s.entries, keys, l.Window.Microseconds(), last, same, AtOnce)
		if err != nil {
			return nil, err
		}
		if len(reply)%2 != 0 {
			return nil, redisclient.ProtocolError("a log of %d numbers", len(reply))
		}
		for i := 0; i < len(reply); i += 2 {
			if reply[i] != last {
				last, same = reply[i], 0
			}
			same++
			all = append(all, store.Entry{At: time.UnixMicro(last), Cost: int(reply[i+1])})
		}
		if len(reply) < 2*AtOnce {
			return all, nil
		}
	}
}

// Reset implements [store.Store].
func (s *Logs) Reset(ctx context.Context, key store.Key, limits []*store.Limit, young time.Duration) error {
	if err := key.Validate(); err != nil || len(limits) == 0 {
		return err
	}
	keys, ages := make([]string, len(limits)), make([]any, len(limits))
	for i, l := range limits {
		keys[i], ages[i] = s.Key(&key, l), max(young, 0).Microseconds()
		if l.Algorithm != store.SlidingLog {
			ages[i] = 0
		}
	}
	_, err := s.Run(ctx, s.reset, keys, ages...)
	return err
}
