package redisclient

import (
	"context"
	"encoding/binary"
	"math"
	"slices"
	"time"

	"github.com/sashlimit/sash/core/store"
)

// AppendKey appends the name of a log in Redis. The braces keep all logs of a key on one server of a cluster.
func (c *Conn) AppendKey(b []byte, k *store.Key, l *store.Limit) []byte {
	b = append(append(b, c.prefix...), c.of.begin...)
	b = append(k.AppendTo(append(b, '{')), "}:"...)
	return append(b, l.Log...)
}

// Key returns the name of a log in Redis.
func (c *Conn) Key(k *store.Key, l *store.Limit) string {
	var space [192]byte
	return string(c.AppendKey(space[:0], k, l))
}

// TTL is the TTL of a log with a window, in milliseconds. It is one second more than the window, since Redis counts a
// TTL from the start of the script in milliseconds, and the log must not expire before its entries.
func TTL(window time.Duration) int64 { return window.Milliseconds() + 1000 }

// AppendID appends the ID of a take as scripts have it in an argument, and logs in an entry.
func AppendID(b []byte, id uint64) []byte { return binary.BigEndian.AppendUint64(b, id) }

// AppendUnits does this for a number of units.
func AppendUnits(b []byte, n int) []byte {
	return binary.BigEndian.AppendUint32(b, uint32(min(max(n, 0), math.MaxInt32)))
}

// Settle implements [store.Settler] for sliding logs. The guard sends one settlement of a take at a time.
func (c *Conn) Settle(ctx context.Context, t store.Settlement) error {
	return c.change(ctx, &t.Key, t.Limit, 0, []store.Entry{{ID: t.ID, Sent: t.Was, Cost: t.Cost, Age: t.Age}})
}

// AtOnce is how many entries one run of a script lists, merges or renews, so that it does not keep the server busy for
// long.
const AtOnce = 500

// Merge implements [store.Merger].
func (c *Conn) Merge(ctx context.Context, m store.MergeRequest) error {
	for part := range slices.Chunk(m.Entries, AtOnce) {
		if err := c.change(ctx, &m.Key, m.Limit, m.Limit.Window, part); err != nil {
			return err
		}
	}
	return nil
}

// change settles takes of a log, or merges them if it gets the window.
func (c *Conn) change(
	ctx context.Context, k *store.Key, l *store.Limit, window time.Duration, takes []store.Entry,
) error {
	if err := k.Validate(); err != nil {
		return err
	}
	var space [256]byte
	b := c.AppendKey(space[:0], k, l)
	end := len(b)
	for i := range takes {
		t, age := &takes[i], max(takes[i].Age, 0)
		if window == 0 && age >= l.Window+time.Second { // ages are a second wrong at most
			age = -time.Microsecond // the log is not searched
		}
		b = AppendUnits(AppendUnits(AppendID(b, t.ID), t.Sent), t.Cost)
		b = binary.BigEndian.AppendUint64(b, uint64(age.Microseconds()))
	}
	q := c.NewQuestion(string(b), end)
	defer q.Free()
	for range len(takes) - 1 {
		q.Keys = append(q.Keys, q.key)
	}
	return c.Do(ctx, c.changes.Get(window, func() *Plan { return c.newChange(window) }), q)
}

func (c *Conn) newChange(window time.Duration) *Plan {
	p := &Plan{
		Script: c.of.settle, Tail: []any{window.Microseconds(), int64(0)}, Alone: c.of.rewrites && window > 0,
	}
	if p.Cut = func(_ []int64, keys int) int { return keys }; window > 0 {
		p.Tail[1] = TTL(window)
	}
	return p
}

// Log implements [store.Lister]. The log may change between two parts.
func (c *Conn) Log(ctx context.Context, key store.Key, l *store.Limit) ([]store.Entry, error) {
	if err := key.Validate(); err != nil {
		return nil, err
	}
	keys, all, last, same := []string{c.Key(&key, l)}, make([]store.Entry, 0), int64(0), 0
	for {
		reply, err := c.Run(ctx, c.of.entries, keys, l.Window.Microseconds(), last, same, AtOnce)
		if err != nil {
			return nil, err
		}
		if len(reply)%2 != 0 {
			return nil, ProtocolError("a log of %d numbers", len(reply))
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
func (c *Conn) Reset(ctx context.Context, key store.Key, limits []*store.Limit, young time.Duration) error {
	if err := key.Validate(); err != nil || len(limits) == 0 {
		return err
	}
	keys, ages := make([]string, len(limits)), make([]any, len(limits))
	for i, l := range limits {
		keys[i], ages[i] = c.Key(&key, l), max(young, 0).Microseconds()
		if l.Algorithm != store.SlidingLog {
			ages[i] = 0
		}
	}
	_, err := c.Run(ctx, c.of.reset, keys, ages...)
	return err
}
