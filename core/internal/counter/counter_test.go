package counter_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/sashlimit/sash/core/internal/counter"
	"github.com/sashlimit/sash/core/internal/definition"
	"github.com/sashlimit/sash/core/store"
)

// randomLimit returns a limit of any algorithm, with small numbers half of the time and with any otherwise.
func randomLimit(r *rand.Rand) store.Limit {
	counting := store.Algorithms()[1:]
	l := store.Limit{Algorithm: counting[r.IntN(len(counting))]}
	if r.IntN(2) == 0 {
		l.Quota, l.Window = 1+r.IntN(9), time.Duration(1+r.IntN(50))*time.Microsecond
	} else {
		l.Quota, l.Window = 1+r.IntN(store.MaxQuota), time.Duration(1000+r.Int64N(365*86400e6))*time.Microsecond
	}
	if l.Algorithm == store.TokenBucket {
		l.Refill = 1 + r.IntN(10)
		if r.IntN(2) == 0 {
			l.Refill = 1 + r.IntN(store.MaxQuota)
		}
		l.Quota = int(min(int64(l.Quota), max(1, int64(365*24*time.Hour)/l.Interval())))
	}
	if l.Algorithm == store.FixedWindow && r.IntN(2) == 0 {
		l.Calendar = new(store.Calendar)
	}
	return l
}

// Until is exact: Used is as low at that instant and not a microsecond before, also across the ends of periods.
func TestUntilIsExact(t *testing.T) {
	for range 200_000 {
		seed := rand.Uint64()
		r := rand.New(rand.NewPCG(seed, 0))
		l, now := randomLimit(r), 1_700_000_000_000_000+r.Int64N(1e15)
		if c := l.Calendar; c != nil {
			window := l.Window.Microseconds()
			*c = store.Calendar{now - window, now, now + window, now + 2*window}
			now += r.Int64N(window)
		}
		var s counter.State
		for range 1 + r.IntN(4) {
			v := s.At(&l, now)
			if room := l.Quota - v.Used(); room > 0 {
				v.Add(1 + r.IntN(room))
			}
			if v.Used() < 0 || v.Used() > l.Quota {
				t.Fatalf("seed %#x: %+v has %d units used", seed, l, v.Used())
			}
			s = v.State
			step := l.Window.Microseconds()
			if l.Calendar != nil {
				step = max(1, (l.Calendar[2]-now)/2)
			}
			now += r.Int64N(step)
		}
		v := s.At(&l, now)
		used := v.Used()
		if used == 0 {
			continue
		}
		target := r.IntN(used)
		wait := v.Until(target)
		at, before := s.At(&l, now+wait.Microseconds()), s.At(&l, now+wait.Microseconds()-1)
		if wait <= 0 || wait%time.Microsecond != 0 || at.Used() > target || before.Used() <= target {
			t.Fatalf("seed %#x: %+v with %+v, %d used: %d or fewer after %v, when there are %d, and %d before",
				seed, l, s, used, target, wait, at.Used(), before.Used())
		}
		end := s.At(&l, now+v.Lasts().Microseconds())
		if end.Used() != 0 {
			t.Fatalf("seed %#x: %+v with %+v: %d used at its end", seed, l, s, end.Used())
		}
	}
}

// When the clock is set back, units of the future count until the end of the next period, and none is lost.
func TestClockStepsBack(t *testing.T) {
	for _, l := range definition.Limits(10, time.Minute)[1:] {
		var s counter.State
		v := s.At(l, 2e15)
		v.Add(10)
		s = v.State
		v = s.At(l, 1e15)
		if wait := v.Until(9); v.Used() != 10 || wait <= 0 || wait > 3*time.Minute {
			t.Errorf("%v: %d used, a wait of %v, after a step back", l.Algorithm, v.Used(), wait)
		}
	}
	for _, c := range []*store.Calendar{nil, {-60e6, 0, 60e6, 120e6}} {
		l := store.Limit{Algorithm: store.FixedWindow, Quota: 10, Window: time.Minute, Calendar: c}
		var s counter.State
		add := func(now int64, units int) {
			v := s.At(&l, now)
			v.Add(units)
			s = v.State
		}
		add(60e6, 7)
		add(60e6-1, 2) // a microsecond earlier, in the period before
		if v := s.At(&l, 60e6+5); v.Used() != 9 {
			t.Errorf("%d used at the beginning of the period, want 9", v.Used())
		}
	}
}

// Waits of a bucket that held more units when they were taken end when there is room, and not before.
func TestBucketBecomesSmaller(t *testing.T) {
	large := store.Limit{Algorithm: store.TokenBucket, Quota: 100, Refill: 10, Window: time.Second}
	small := large
	small.Quota = 10
	var s counter.State
	v := s.At(&large, 1e15)
	v.Add(100)
	s = v.State
	v = s.At(&small, 1e15)
	wait := v.Until(small.Quota - 1)
	if want := 9100 * time.Millisecond; wait != want {
		t.Errorf("a wait of %v, want %v", wait, want)
	}
	at, before := s.At(&small, 1e15+wait.Microseconds()), s.At(&small, 1e15+wait.Microseconds()-1)
	if at.Used() != 9 || before.Used() != 10 {
		t.Errorf("%d used after the wait and %d before, want 9 and 10", at.Used(), before.Used())
	}
}

// A clock before a calendar is in its first period, and waits until that ends.
func TestClockBeforeCalendar(t *testing.T) {
	l := store.Limit{
		Algorithm: store.FixedWindow, Quota: 1, Window: time.Minute,
		Calendar: &store.Calendar{60e6, 120e6, 180e6, 240e6},
	}
	var s counter.State
	v := s.At(&l, 50e6)
	v.Add(1)
	s = v.State
	for _, now := range []int64{50e6, 55e6, 60e6, 119_999_999} {
		v := s.At(&l, now)
		if wait := v.Until(0); v.Used() != 1 || now+wait.Microseconds() != 120e6 {
			t.Errorf("at %d: %d used, a wait of %v, want 1 until 120000000", now, v.Used(), wait)
		}
	}
	if v := s.At(&l, 120e6); v.Used() != 0 {
		t.Errorf("%d used in the second period", v.Used())
	}
}

// A take from before a reset makes no room when it is settled.
func TestSettle(t *testing.T) {
	const minute = 60e6
	for _, l := range definition.Limits(10, time.Minute)[1:] {
		v := new(counter.State).At(l, 10*minute)
		period := v.Period()
		for _, now := range []int64{10 * minute, 11 * minute} { // of a sliding counter, the period before
			v = new(counter.State).At(l, now)
			if v.Settle(period, 6, 0); v.Used() != 0 {
				t.Errorf("%v: %d used after a reset and a settlement", l.Algorithm, v.Used())
			}
		}
	}
}
