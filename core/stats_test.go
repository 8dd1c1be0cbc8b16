package core_test

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/coretest"
)

func TestStatsOfMemory(t *testing.T) {
	s := core.NewMemoryStore(core.WithMaxKeys(3))
	l := newLimiter(t, core.Limits{core.PerHour(5), core.InFlight(2)},
		core.WithStore(s), core.WithName("jobs"))
	empty := l.Stats()
	if empty.Policy != "jobs" || empty.Store != core.Store(s) || empty.MaxKeys != 3 || empty.Keys != 0 ||
		empty.InFlight != 0 || empty.Breaker != "" {
		t.Errorf("an empty store: %+v", empty)
	}
	d := allowed(t, l, "a", true)
	one := l.Stats()
	if one.Keys != 1 || one.InFlight != 1 || one.Bytes < empty.Bytes+2*192 {
		t.Errorf("a request: %+v, and an empty store has %d bytes", one, empty.Bytes)
	}
	must(t, d.Release(t.Context()))
	for i := range 10 {
		d, err := l.Allow(t.Context(), fmt.Sprint("b", i))
		must(t, err)
		d.Release(t.Context())
	}
	many := l.Stats()
	if many.InFlight != 0 || many.Keys != 3 || many.Shared < 8 || many.Shared != s.Shared() {
		t.Errorf("more keys than places: %+v", many)
	}
}

// An outage is counted from its first failure to the last take that the store is told.
func TestStatsOfAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := new(coretest.FakeStore)
		l := newLimiter(t, core.PerHour(100), core.WithStore(s), core.WithFailLocalKeys(1))
		defer l.Close()
		allow := func(key string) {
			t.Helper()
			allowed(t, l, key, true)
		}
		allow("a")
		check := func(when, want string) {
			t.Helper()
			n := l.Stats()
			got := fmt.Sprintf("%s, %d outages of %d failures, %d to replay, %d lost, %d replayed",
				n.Breaker, n.Outages, n.Failures, n.Backlog, n.Lost, n.Replayed)
			if got != want || n.Policy != "100-per-hour" || n.Store != core.Store(s) {
				t.Errorf("%s: %s; want %s", when, got, want)
			}
		}
		check("before", "closed, 0 outages of 0 failures, 0 to replay, 0 lost, 0 replayed")
		s.Fail(errors.New("away"))
		for range 5 {
			time.Sleep(time.Millisecond)
			allow("a")
		}
		allow("b") // for which there is a place
		allow("c") // for which there is none
		check("during an outage", "open, 1 outages of 5 failures, 6 to replay, 1 lost, 0 replayed")
		s.Fail(nil)
		for range 10 {
			s.Advance(time.Second)
			time.Sleep(time.Second)
			synctest.Wait()
		}
		check("after the replay", "closed, 1 outages of 5 failures, 0 to replay, 1 lost, 6 replayed")
	})
}
