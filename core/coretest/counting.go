package coretest

import (
	"fmt"
	"testing"
	"time"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/store"
)

// counting is a store under test that has other algorithms than the sliding log, at a known instant.
type counting struct {
	*direct

	algorithms []store.Algorithm
	advance    func(time.Duration)
	now        int64 // the store's clock, in microseconds since the Unix epoch
}

// newCounting makes a store, or skips the test if it has no other algorithms.
func newCounting(t *testing.T, c StoreConfig) *counting {
	t.Helper()
	if c.Repeats {
		t.Skip("what an algorithm without entries is told twice counts twice")
	}
	s, advance := c.New(t)
	d := newDirect(t, s)
	k := &counting{direct: d, advance: advance}
	for a := store.FixedWindow; a <= store.TokenBucket; a++ {
		if s.Validate(planFor(limitOf(a, 1, time.Second))) == nil {
			k.algorithms = append(k.algorithms, a)
		}
	}
	if len(k.algorithms) == 0 {
		t.Skip("the store has the sliding log alone")
	}
	k.findNow()
	return k
}

// findNow finds out what the store's clock says. The distance to the end of the period tells the instant within the
// period, for periods of two lengths that have no common factor.
func (k *counting) findNow() {
	if k.algorithms[0] == store.TokenBucket { // whose numbers do not depend on the instant
		return
	}
	const long = int64(core.MaxWindow / time.Microsecond)
	within := func(length int64) int64 {
		k.key = store.NewKey("counting:now", fmt.Sprint(length))
		l := limitOf(k.algorithms[0], 1, time.Duration(length)*time.Microsecond)
		reset := k.take(store.NewPlan(store.Plan{Limits: []store.Limit{l}}), store.ModeCharge, 1).State[0].Reset
		if l.Algorithm == store.SlidingCounter { // the unit leaves at the end of the next period
			reset -= l.Window
		}
		return length - reset.Microseconds()
	}
	first, second := within(long), within(long-1)
	for periods := range int64(1000) {
		if now := periods*long + first; now%(long-1) == second {
			k.now = now
			return
		}
	}
	k.t.Fatalf("periods of %d and %d microseconds since the Unix epoch began %d and %d ago, which is no instant",
		long, long-1, first, second)
}

func (k *counting) step(d time.Duration) {
	if d > 0 {
		k.advance(d)
		k.now += d.Microseconds()
	}
}

// to advances to the next instant that is so far after the beginning of a period.
func (k *counting) to(period, after time.Duration) {
	within := time.Duration(k.now%period.Microseconds()) * time.Microsecond
	k.step((after - within + 2*period) % period)
}

// limitOf returns a limit of an algorithm that admits at most quota units at once, and the same again in a window.
func limitOf(a store.Algorithm, quota int, window time.Duration) store.Limit {
	l := store.Limit{Quota: quota, Window: window, Algorithm: a}
	if a == store.TokenBucket {
		l.Refill = quota
	}
	return l
}
