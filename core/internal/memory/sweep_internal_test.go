package memory

import (
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sashlimit/sash/core/store"
)

// A sweep looks at few logs each time it has a shard's lock, and at all of them in the end.
func TestSweepsHoldLocksBriefly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const keys = 20_000
		s := New(1 << 18)
		l := newPolicy(s, "p", 1, time.Minute)
		for i := range keys {
			l.allow(strconv.Itoa(i))
		}
		s.fires.Store(noTimer) // the one that is pending does nothing
		time.Sleep(2 * time.Minute)
		if s.Keys() != keys {
			t.Fatalf("%d keys, want %d", s.Keys(), keys)
		}
		for i := range s.shards {
			sh := &s.shards[i]
			sh.now = s.clock()
			before := sh.logs.used
			var at cursor
			for more := true; more; {
				left := sh.logs.used
				if more = sh.sweepPart(s, &at); left-sh.logs.used > sweepLogs {
					t.Fatalf("%d logs at once", left-sh.logs.used)
				}
			}
			if before < keys/shardCount/2 || sh.logs.used > 0 || len(sh.logs.all()) > 0 {
				t.Errorf("shard %d: %d of %d logs remain in %d places", i, sh.logs.used, before, len(sh.logs.all()))
			}
		}
	})
}

// Sweeps by the timer run beside takes that make logs, find them and see them leave.
func TestSweepsBesideTakes(t *testing.T) {
	const keys, quota, askers = 500, 3, 4
	s := New(2000)
	steady := newPolicy(s, "steady", quota, time.Hour)
	for i := range keys { // before others take the places
		steady.allow(strconv.Itoa(i))
	}
	fleeting := newPolicy(s, "fleeting", 1, time.Millisecond)
	var asking, passing sync.WaitGroup
	done := make(chan struct{})
	until := func(f func(i int)) func() {
		return func() {
			for i := 0; ; i++ {
				select {
				case <-done:
					return
				default:
					f(i)
				}
			}
		}
	}
	passing.Go(until(func(int) { s.sweepAll() }))
	passing.Go(until(func(i int) { fleeting.allow(strconv.Itoa(i % 50_000)) }))
	var allowed [keys]atomic.Int32
	for range askers {
		asking.Go(func() {
			for range 20 {
				for k := range keys {
					if steady.allow(strconv.Itoa(k)) {
						allowed[k].Add(1)
					}
				}
			}
		})
	}
	asking.Wait()
	close(done)
	passing.Wait()
	for k := range allowed {
		if n := allowed[k].Load(); n != quota-1 {
			t.Errorf("key %d was allowed %d of %d", k, n, quota-1)
		}
	}
}

// A store that uses windows of several lengths is swept as often as the shortest needs.
func TestTimerFollowsTheShortestWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(1 << 18)
		ask := func(limit store.Limit) { newPolicy(s, limit.String(), limit.Quota, limit.Window).allow("k") }
		for _, c := range []struct {
			limit store.Limit
			fires time.Duration
		}{
			{store.Limit{Quota: 1, Window: 24 * time.Hour}, time.Hour},
			{store.Limit{Quota: 1, Window: time.Hour}, 30 * time.Minute},
			{store.Limit{Quota: 1, Window: time.Minute}, 30 * time.Second},
			{store.Limit{Quota: 1, Window: time.Second}, 30 * time.Second},
			{store.Limit{Quota: 2, Window: 24 * time.Hour}, 30 * time.Second},
		} {
			if ask(c.limit); time.Duration(s.fires.Load()) != c.fires {
				t.Errorf("%v: the timer fires after %v, want %v", c.limit, time.Duration(s.fires.Load()), c.fires)
			}
		}
		time.Sleep(25 * time.Hour)
		synctest.Wait()
		if s.Keys() != 0 || s.fires.Load() != noTimer {
			t.Errorf("%d keys, a timer at %v", s.Keys(), time.Duration(s.fires.Load()))
		}
	})
}
