package memory

import (
	"testing"
	"time"

	"github.com/sashlimit/sash/core/store"
)

func windowPlan(quota int, window time.Duration) *store.Plan {
	return store.NewPlan(store.Plan{Limits: []store.Limit{
		{Quota: quota, Window: window, Algorithm: store.FixedWindow},
	}})
}

// counted takes from a log's numbers, at an instant of the log's clock and of the wall clock in microseconds.
func counted(l *keyLog, p *store.Plan, now time.Duration, wall int64) (a store.Answer) {
	l.now = max(l.now, int64(now))
	l.count(p, wall, 1, store.ModeCharge, &a)
	return a
}

// A take reads the store's clock first, may then wait for a lock, and reads the wall clock. Numbers are not forgotten
// before their period ends by the wall clock.
func TestPeriodsEndByTheWallClock(t *testing.T) {
	const second = 1_000_000
	for _, late := range []time.Duration{0, 300 * time.Microsecond, 20 * time.Millisecond} {
		l, p := new(keyLog), windowPlan(1, time.Second)
		if a := counted(l, p, 0, 5*second+late.Microseconds()); !a.Allowed {
			t.Fatalf("late by %v: %+v", late, a)
		}
		a := counted(l, p, time.Second-time.Microsecond, 6*second-1)
		if a.Allowed || a.Retry != time.Microsecond {
			t.Errorf("late by %v, a microsecond before the period ends: %+v", late, a)
		}
		if a := counted(l, p, time.Second, 6*second); !a.Allowed {
			t.Errorf("late by %v, at the end of the period: %+v", late, a)
		}
	}
}

// After the wall clock was set back, nobody is denied for longer than a period and a second, nor told so.
func TestWallClockSetBack(t *testing.T) {
	const day = 86_400_000_000
	bucket := store.NewPlan(store.Plan{Limits: []store.Limit{
		{Quota: 1, Window: time.Minute, Algorithm: store.TokenBucket, Refill: 1},
	}})
	for _, p := range []*store.Plan{windowPlan(1, time.Minute), bucket} {
		l := new(keyLog)
		if a := counted(l, p, time.Second, 400*day); !a.Allowed {
			t.Fatalf("%+v", a)
		}
		a := counted(l, p, 2*time.Second, 399*day)
		if a.Allowed || a.Retry <= 0 || a.Retry > time.Minute+time.Second {
			t.Errorf("%v: %+v, want a denial of a minute or less", p.Algorithm(), a)
		}
		if a := counted(l, p, 2*time.Second+a.Retry, 399*day); !a.Allowed {
			t.Errorf("%v: %+v, want it allowed after the wait", p.Algorithm(), a)
		}
	}
}

// A key that is asked by plans of several algorithms, which no limiter does, breaks nothing.
func TestNumbersInPlaceOfEntries(t *testing.T) {
	l := new(keyLog)
	log := store.NewPlan(store.Plan{Limits: []store.Limit{{Quota: 50, Window: time.Minute}}})
	window := windowPlan(50, time.Minute)
	for i := range 200 {
		now := time.Duration(i) * time.Second
		if counted(l, window, now, int64(i)*1_000_000); l.Len() != 0 {
			t.Fatalf("%d entries beside numbers", l.Len())
		}
		for n := range i % 20 {
			var a store.Answer
			l.decide(&store.Take{Plan: log}, 1+i%2, store.ModeCharge, instant{}, &a)
			if a.State[0].Used != n*(1+i%2) {
				t.Fatalf("step %d, take %d: %+v", i, n, a)
			}
		}
	}
}

// A take that has read the clocks and then waited for the lock is decided at the instant of the take before it, by
// which a token has come back.
func TestWallTimeNeverRunsBackwards(t *testing.T) {
	s, key := New(10), store.NewKey("p", "k")
	bucket := store.NewPlan(store.Plan{Limits: []store.Limit{
		{Quota: 2, Window: time.Second, Algorithm: store.TokenBucket, Refill: 1},
	}})
	takes, answers := []store.Take{{Key: key, Plan: bucket, Cost: 1}}, make([]store.Answer, 1)
	at := func(now time.Duration) bool {
		t.Helper()
		at := instant{int64(now), int64(1000 * time.Hour)}
		if clear(answers); !s.takeOwn(&takes[0], &answers[0], at) {
			s.takeParts(takes, answers, at)
		}
		return answers[0].Allowed
	}
	if !at(time.Second) || !at(2*time.Second) || !at(time.Second) || at(time.Second) {
		t.Errorf("%+v, want two units of a bucket of two, and one that came back", answers)
	}
}
