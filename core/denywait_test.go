package core_test

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/store"
)

// lagging is a store that is so far away in each direction, in the time of a bubble.
type lagging struct {
	*slowStore

	there, back time.Duration
	last        []store.Take
	asked       int
}

func (s *lagging) Take(ctx context.Context, takes []store.Take, answers []store.Answer) error {
	time.Sleep(s.there)
	s.last, s.asked = slices.Clone(takes), s.asked+1
	err := s.slowStore.Take(ctx, takes, answers)
	time.Sleep(s.back)
	return err
}

// A larger cost was told the wait of a smaller one.
func TestDenyCacheTellsNoOtherCostsWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newSlowStore()
		l := newLimiter(t, core.PerHour(2), core.WithStore(store))
		ask := func(cost int, allowed bool, wait time.Duration) {
			t.Helper()
			d, err := l.AllowN(t.Context(), "k", cost)
			if err != nil || d.Allowed != allowed || d.RetryAfter != wait || d.ResetAfter == 0 {
				t.Errorf("cost %d: %+v, %v; want %v, %v", cost, d, err, allowed, wait)
			}
		}
		ask(1, true, 0)
		time.Sleep(time.Hour - 30*time.Second)
		ask(1, true, 0)
		for range 3 {
			ask(1, false, 30*time.Second)
			ask(2, false, time.Hour)
		}
		if n := store.asked.Load(); n != 6 {
			t.Errorf("the store was asked %d times, want 6: the least cost that was denied is remembered", n)
		}
	})
}

// A wait that was remembered for two units was told though one had been admitted since.
func TestAdmissionEndsRememberedWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, core.Limit{Quota: 3, Window: 10 * time.Second}, core.WithStore(newSlowStore()))
		take := func(cost int) core.Decision {
			t.Helper()
			d, err := l.AllowN(t.Context(), "k", cost)
			if err != nil {
				t.Fatal(err)
			}
			return d
		}
		take(1)
		time.Sleep(300 * time.Millisecond)
		take(1)
		if d := take(2); d.Allowed || d.RetryAfter != 9700*time.Millisecond {
			t.Errorf("%+v; want a wait of 9.7 s", d)
		}
		take(1)
		if d := take(2); d.Allowed || d.RetryAfter != 10*time.Second {
			t.Errorf("%+v; want a wait of 10 s", d)
		}
		if _, err := l.Record(t.Context(), "k", 1); err != nil {
			t.Fatal(err)
		}
		if d := take(2); d.Allowed || d.RetryAfter != 10*time.Second || d.Used != 4 {
			t.Errorf("%+v; want it to know what was recorded", d)
		}
	})
}

// A client that slept for the deny cache's wait was denied again if the way to the store had taken 40 ms.
func TestCachedWaitIsLongEnough(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &lagging{slowStore: newSlowStore()}
		l := newLimiter(t, core.PerSecond(1), core.WithStore(store))
		early := 0
		for range 50 {
			var d core.Decision
			store.there = 40 * time.Millisecond
			for i := range 3 { // admitted, denied, and denied from memory
				var err error
				if d, err = l.Allow(t.Context(), "k"); err != nil || d.Allowed != (i == 0) {
					t.Fatal(i, d, err)
				}
				if i == 1 {
					time.Sleep(100 * time.Millisecond)
				}
			}
			time.Sleep(d.RetryAfter)
			store.there = time.Millisecond
			if d, err := l.Allow(t.Context(), "k"); err != nil {
				t.Fatal(err)
			} else if !d.Allowed {
				early++
			}
			time.Sleep(2 * time.Second)
		}
		if early > 0 {
			t.Errorf("%d of 50 were told to come too early", early)
		}
	})
}
