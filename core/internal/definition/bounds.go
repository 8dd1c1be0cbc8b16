package definition

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sashlimit/sash/core/store"
)

// Bounds checks what a store must keep where its answers are not defined exactly: when its clock is set back, which
// Advance must be able to do, and when takes of ModeAtMost and of algorithms that count are executed twice, which then
// may count twice. No log is over its quota, what was admitted counts, and no wait is longer than a window and a
// second. While a clock is set back, a window may hold two quotas.
func Bounds(t *testing.T, c Config) {
	t.Helper()
	if failure := c.bounds(t); failure != "" {
		t.Error(failure)
	}
}

func (c Config) bounds(t *testing.T) (failure string) {
	if c.Run == nil {
		c.Run = func(t *testing.T, f func(t *testing.T)) { f(t) }
	}
	twice := c.Twice
	c.Twice = false // what the other test leaves out under Twice is tested here
	n, back := 0, 0
	for seed := rand.Uint64() >> 16; n < c.Operations && failure == "" && !t.Failed(); seed++ {
		c.Run(t, func(t *testing.T) {
			b := bounds{trace: newTrace(t, &c, seed, new(counts)), twice: twice}
			if err := b.play(); err != nil {
				failure = strings.Join(append(b.told, err.Error()), "\n")
			}
			n += b.n.operations
			back += b.back
		})
	}
	t.Logf("%d operations, the clock was set back %d times", n, back)
	return failure
}

// bounds is a trace of one key, of which the real time is known as well as that of the store's clock.
type bounds struct {
	*trace

	twice    bool
	real     int64 // microseconds, which are never set back
	since    int64 // when the clock was set back, or 0
	back     int   // how often
	admitted []entry
	told     []string
}

func (b *bounds) play() error {
	s := anyOf(b.r, b.logs...)
	l := *s.first()
	l.Calendar, l.Permits, l.Log = nil, false, l.Log+".bounds"
	l.Quota = min(l.Quota, 30) // so that it is reached
	b.real = 1
	for n := range 100 {
		pause := b.part(anyOf(b.r, 0, l.Window/time.Duration(l.Quota), l.Window)) % longerPause
		b.Advance(pause)
		b.real += pause.Microseconds()
		if !b.twice && b.back == 0 && n > 30 && b.r.IntN(20) == 0 {
			by := b.part(anyOf(b.r, l.Window, 3*l.Window, time.Second))
			b.Advance(-by)
			b.tellf("set back by %v", by)
			b.back, b.since = 1, b.real
		}
		if err := b.ask(&l, s.key); err != nil {
			return err
		}
	}
	return nil
}

// tellf keeps what is printed if a later answer is wrong.
func (b *bounds) tellf(format string, args ...any) {
	b.told = append(b.told[max(0, len(b.told)-20):], fmt.Sprintf(format, args...))
}

// ask makes a take, and checks what its answer must not be.
func (b *bounds) ask(l *store.Limit, key int) error {
	b.id++
	b.n.operations++
	q := request{id: b.id, mode: anyOf(b.r, store.ModeCharge, store.ModePeek, store.ModeAtMost)}
	q.asks = []ask{{key, l, 1 + b.r.IntN(min(3, l.Quota))}}
	if b.Units {
		q.asks[0].cost = 1
	}
	got, err := send(b.t.Context(), b.Store, q.takes(b.run))
	if err != nil {
		return err
	}
	a := got[0]
	b.tellf("%v %v: %+v", time.Duration(b.real)*time.Microsecond, &q, a)
	units := 0
	switch {
	case q.mode == store.ModeAtMost:
		units = a.Granted
	case q.mode == store.ModeCharge && a.Allowed:
		units = q.asks[0].cost
	}
	// The units that a window holds in real time.
	span, most, longest := l.Window.Microseconds(), l.Quota, l.Window
	switch l.Algorithm {
	case store.SlidingLog:
	case store.FixedWindow:
		most = 2 * l.Quota
	case store.SlidingCounter:
		most, longest = 2*l.Quota, 2*l.Window
	case store.TokenBucket:
		span = (int64(l.Quota)*l.Interval() + 999) / 1000
		most, longest = 2*l.Quota, time.Duration(span)*time.Microsecond
	}
	b.admitted = append(b.admitted, entry{at: b.real, units: units})
	b.admitted = slices.DeleteFunc(b.admitted, func(e entry) bool { return e.at <= b.real-span })
	if b.since > b.real-span {
		most += l.Quota
	}
	sum := sum(b.admitted)
	switch {
	case sum > most:
		return fmt.Errorf("%d units admitted in %v, at most %d may be", sum, time.Duration(span)*time.Microsecond, most)
	case a.Used > l.Quota && b.since == 0:
		return fmt.Errorf("%d units are used of %d", a.Used, l.Quota)
	case b.since == 0 && l.Algorithm == store.SlidingLog && a.Used < sum-units:
		return fmt.Errorf("%d units are used, although %d were admitted", a.Used, sum-units)
	case a.Retry > longest+time.Second:
		return fmt.Errorf("a wait of %v, at most %v and a second may be", a.Retry, longest)
	}
	return nil
}
