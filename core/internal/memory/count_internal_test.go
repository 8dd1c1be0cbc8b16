package memory

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sashlimit/sash/core/internal/definition"
	"github.com/sashlimit/sash/core/store"
)

// counted takes from a log's numbers, at an instant of the log's clock and of the wall clock in microseconds.
func counted(l *log, at time.Duration, wall int64) (a store.Answer) {
	now := instant{clock: int64(at), wall: wall*1000 - int64(at)}
	l.decide(l.limit, now, int64(at), 0, 1, 0, store.ModeCharge, &a)
	return a
}

// A take reads the store's clock first, may then wait for a lock, and reads the wall clock. Numbers are not forgotten
// before their period ends by the wall clock.
func TestPeriodsEndByTheWallClock(t *testing.T) {
	const second = 1_000_000
	for _, late := range []time.Duration{0, 300 * time.Microsecond, 20 * time.Millisecond} {
		l := &log{limit: &store.Limit{Quota: 1, Window: time.Second, Algorithm: store.FixedWindow}}
		if a := counted(l, 0, 5*second+late.Microseconds()); !a.Allowed {
			t.Fatalf("late by %v: %+v", late, a)
		}
		a := counted(l, time.Second-time.Microsecond, 6*second-1)
		if a.Allowed || a.Retry != time.Microsecond {
			t.Errorf("late by %v, a microsecond before the period ends: %+v", late, a)
		}
		if a := counted(l, time.Second, 6*second); !a.Allowed {
			t.Errorf("late by %v, at the end of the period: %+v", late, a)
		}
	}
}

// After the wall clock was set back, nobody is denied for longer than a window and a second, nor told so.
func TestWallClockSetBack(t *testing.T) {
	const day = 86_400_000_000
	calendar := &store.Limit{
		Quota: 2, Window: time.Minute, Algorithm: store.FixedWindow,
		Calendar: &store.Calendar{399 * day, 400 * day, 401 * day, 402 * day},
	}
	for _, limit := range append(definition.Limits(2, time.Minute)[1:], calendar) {
		for _, back := range []int64{1, 1_000_000, 59_000_000, 61_000_000, 3_600_000_000, day} {
			l := &log{limit: limit}
			counted(l, time.Second, 400*day)
			counted(l, time.Second, 400*day)
			at, wall := 2*time.Second, 400*day+1_000_000-back
			a := counted(l, at, wall)
			most := limit.Window + time.Second
			switch {
			case limit.Calendar != nil:
				most += 24 * time.Hour
			case limit.Algorithm == store.SlidingCounter: // it counts in the window of the next period, too
				most += limit.Window
			}
			if a.Allowed || a.Retry <= 0 || a.Retry > most {
				t.Errorf("%v, %d us back: %+v, want a denial of %v or less", limit.Algorithm, back, a, most)
			}
			if a := counted(l, at+a.Retry, wall+a.Retry.Microseconds()); !a.Allowed {
				t.Errorf("%v, %d us back: %+v, want it allowed after the wait", limit.Algorithm, back, a)
			}
		}
	}
}

// Keys leave when their numbers say nothing any more, and not before.
func TestNumbersLeave(t *testing.T) {
	for _, limit := range definition.Limits(3, time.Minute)[1:] {
		a := limit.Algorithm
		synctest.Test(t, func(t *testing.T) {
			p := newPolicy(New(1000), "p", limit)
			for i := range 500 {
				p.take(fmt.Sprint(i), 3, store.ModeCharge)
			}
			for range 59 { // denials and peeks change nothing
				time.Sleep(time.Second)
				p.take("7", 3, store.ModeCharge)
			}
			if n := p.s.Keys(); n != 500 || p.used("9") == 0 {
				t.Errorf("%v: %d keys a second before a minute is over, %d used", a, n, p.used("9"))
			}
			time.Sleep(5 * time.Minute)
			if synctest.Wait(); p.s.Keys() != 0 {
				t.Errorf("%v: %d keys in the end", a, p.s.Keys())
			}
		})
	}
}

// A key that is asked by limits of several algorithms on one log, which no limiter does, has one log for each.
func TestAlgorithmsOfOneName(t *testing.T) {
	p := newPolicy(New(10), "p", &store.Limit{Log: "l", Quota: 50, Window: time.Hour})
	window := policy{p.s, p.ns, &store.Limit{Log: "l", Quota: 50, Window: time.Hour, Algorithm: store.FixedWindow}}
	for n := range 20 {
		if p.used("k") != n || window.used("k") != n {
			t.Fatalf("%d and %d used, want %d of both", p.used("k"), window.used("k"), n)
		}
		p.allow("k")
		window.allow("k")
	}
}

// A take that has read the clocks and then waited for the lock is decided at the instant of the take before it, by
// which a token has come back.
func TestWallTimeNeverRunsBackwards(t *testing.T) {
	p := newPolicy(New(10), "p", &store.Limit{
		Log: "b", Quota: 2, Window: time.Second, Algorithm: store.TokenBucket, Refill: 1,
	})
	take := store.Take{Key: p.key("k"), Limit: p.limit, Cost: 1}
	p.used("k")
	p.take("k", 3, store.ModeCharge) // adds the entry
	e := p.s.of(p.key("k"), nil)
	at := func(now time.Duration) bool {
		var a store.Answer
		e.lock(int64(now))
		defer e.mu.Unlock()
		return e.takeOne(&take, &a, instant{int64(now), int64(1000 * time.Hour)}) && a.Allowed
	}
	if !at(time.Second) || !at(2*time.Second) || !at(time.Second) || at(time.Second) {
		t.Error("want two units of a bucket of two, and one that came back")
	}
}

// A bucket that is full again was forgotten. Units more leave it nevertheless.
func TestSettleOfAFullBucket(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPolicy(New(10), "p", &store.Limit{
			Log: "b", Quota: 10, Window: time.Minute, Algorithm: store.TokenBucket, Refill: 10,
		})
		id, a := p.take("k", 1, store.ModeCharge)
		time.Sleep(time.Hour)
		p.s.Settle(&store.Settlement{Key: p.key("k"), Limit: p.limit, ID: id, Was: 1, Cost: 4, Period: a.Period})
		if used := p.used("k"); used != 3 {
			t.Errorf("%d units are used, want 3", used)
		}
	})
}
