// Package porttest has what the tests of ports have in common.
package porttest

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/coretest"
)

// Compare runs a case with the original, which gets it wrong, and with the port, each in a bubble.
func Compare[L any](t *testing.T, original func() L, port func(*testing.T) L, f func(L) (wrong bool)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		if !f(original()) {
			t.Error("the original gets it right")
		}
	})
	synctest.Test(t, func(t *testing.T) {
		if f(port(t)) {
			t.Error("the port gets it wrong, too")
		}
	})
}

// Redis is a server of counters. Each command takes a millisecond, as over a network.
type Redis struct {
	mu       sync.Mutex
	counters map[string]counter
}

type counter struct {
	value int64
	end   time.Time // when it expires
}

// IncrBy adds n to a counter, which begins at 0. If it is new, it expires after ttl.
func (r *Redis) IncrBy(key string, n int64, ttl time.Duration) int64 {
	time.Sleep(time.Millisecond)
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.get(key)
	if c.value += n; c.end.IsZero() {
		c.end = time.Now().Add(ttl)
	}
	r.counters[key] = c
	return c.value
}

// Set sets a counter to 1, and when it expires.
func (r *Redis) Set(key string, ttl time.Duration) {
	time.Sleep(time.Millisecond)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.get(key)
	r.counters[key] = counter{1, time.Now().Add(ttl)}
}

// Get returns a counter, or 0.
func (r *Redis) Get(key string) int64 {
	time.Sleep(time.Millisecond)
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.get(key).value
}

func (r *Redis) get(key string) counter {
	if r.counters == nil {
		r.counters = make(map[string]counter)
	}
	if c := r.counters[key]; time.Now().Before(c.end) {
		return c
	}
	return counter{}
}

// Log is what a limiter has admitted.
type Log struct {
	mu      sync.Mutex
	entries []core.Entry
}

// Admit notes a cost that was admitted now.
func (l *Log) Admit(cost int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.entries = append(l.entries, core.Entry{At: time.Now(), Cost: cost})
}

// Len returns how many requests were admitted.
func (l *Log) Len() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.entries)
}

// Breaks reports whether any window of the log has more than the limit allows.
func (l *Log) Breaks(limit core.Limit) bool {
	var reports reports
	l.mu.Lock()
	defer l.mu.Unlock()
	coretest.Verify(&reports, l.entries, core.Limits{limit})
	return reports.n > 0
}

// reports counts what is reported.
type reports struct {
	testing.TB

	n int
}

func (*reports) Helper()                 {}
func (r *reports) Errorf(string, ...any) { r.n++ }

// AtOnce calls f so many times at the same time, and waits for all of them.
func AtOnce(n int, f func()) {
	var all sync.WaitGroup
	for range n {
		all.Go(f)
	}
	all.Wait()
}
