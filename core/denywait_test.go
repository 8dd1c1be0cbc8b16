package core_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/coretest"
	"github.com/sashlimit/sash/core/store"
)

// pass lets time go by, of a bubble and of a store.
func pass(s *coretest.FakeStore, d time.Duration) {
	s.Advance(d)
	time.Sleep(d)
}

// A larger cost was told the wait of a smaller one.
func TestDenyCacheTellsNoOtherCostsWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := new(coretest.FakeStore)
		l := newLimiter(t, core.PerHour(2), core.WithStore(fake))
		ask := func(cost int, allowed bool, wait time.Duration) {
			t.Helper()
			d, err := l.AllowN(t.Context(), "k", cost)
			if err != nil || d.Allowed != allowed || d.RetryAfter != wait || d.ResetAfter == 0 {
				t.Errorf("cost %d: %+v, %v; want %v, %v", cost, d, err, allowed, wait)
			}
		}
		ask(1, true, 0)
		pass(fake, time.Hour-30*time.Second)
		ask(1, true, 0)
		for range 3 {
			ask(1, false, 30*time.Second)
			ask(2, false, time.Hour)
		}
		if n := fake.Takes(); n != 6 {
			t.Errorf("the store was asked %d times, want 6: the least cost that was denied is remembered", n)
		}
	})
}

// A wait that was remembered for two units was told though one had been admitted since.
func TestAdmissionEndsRememberedWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := new(coretest.FakeStore)
		l := newLimiter(t, core.Limit{Quota: 3, Window: 10 * time.Second}, core.WithStore(fake))
		take := func(cost int) core.Decision {
			t.Helper()
			d, err := l.AllowN(t.Context(), "k", cost)
			must(t, err)
			return d
		}
		take(1)
		pass(fake, 300*time.Millisecond)
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
		var there time.Duration // how long a call is on its way
		far := &double{Full: core.NewMemoryStore(), take: func(_ []store.Take, ask func() error) error {
			time.Sleep(there)
			return ask()
		}}
		l := newLimiter(t, core.PerSecond(1), core.WithStore(far))
		early := 0
		for range 50 {
			var d core.Decision
			there = 40 * time.Millisecond
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
			there = time.Millisecond
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
