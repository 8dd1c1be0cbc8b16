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
