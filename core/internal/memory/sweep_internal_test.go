package memory

import (
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sashlimit/sash/core/store"
)

// A sweep handles few logs each time it holds a shard's lock, and all of them in the end.
func TestSweepsHoldLocksBriefly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const keys = 20_000
		s := New(1 << 18)
		l := newPolicy(s, "p", 1, time.Minute)
		for i := range keys {
			l.allow(strconv.Itoa(i))
		}
		s.timerAt.Store(noTimer) // the pending timer does nothing
		time.Sleep(2 * time.Minute)
		if s.Keys() != keys {
			t.Fatalf("%d keys, want %d", s.Keys(), keys)
		}
		for i := range s.shards {
			sh := &s.shards[i]
			sh.now = s.clock()
			before := sh.logs.used
			for first, more := true, true; more; first = false {
				left := sh.logs.used
				if more = sh.sweepPart(s, first); left-sh.logs.used > sweepLogs {
					t.Fatalf("%d logs are removed at once", left-sh.logs.used)
				}
			}
			if before < keys/shardCount/2 || sh.logs.used > 0 || len(sh.logs.all()) > 0 {
				t.Errorf("shard %d: %d of %d logs remain in %d slots", i, sh.logs.used, before, len(sh.logs.all()))
			}
		}
	})
}

// Sweeps by timer run concurrently with takes that add logs, find them and find them removed.
func TestSweepsDuringTakes(t *testing.T) {
	const keys, quota, callers = 500, 3, 4
	s := New(2000)
	steady := newPolicy(s, "steady", quota, time.Hour)
	for i := range keys { // before other keys take the places
		steady.allow(strconv.Itoa(i))
	}
	fleeting := newPolicy(s, "fleeting", 1, time.Millisecond)
	var takes, background sync.WaitGroup
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
	background.Go(until(func(int) { s.sweepAll() }))
	background.Go(until(func(i int) { fleeting.allow(strconv.Itoa(i % 50_000)) }))
	var allowed [keys]atomic.Int32
	for range callers {
		takes.Go(func() {
			for i := range 20 * keys {
				if k := i % keys; steady.allow(strconv.Itoa(k)) {
					allowed[k].Add(1)
				}
			}
		})
	}
	takes.Wait()
	close(done)
	background.Wait()
	for k := range allowed {
		if n := allowed[k].Load(); n != quota-1 {
			t.Errorf("key %d was allowed %d of %d", k, n, quota-1)
		}
	}
}

// A store with windows of several lengths is swept as often as the shortest needs.
func TestTimerFollowsTheShortestWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(1 << 18)
		take := func(limit store.Limit) { newPolicy(s, limit.String(), limit.Quota, limit.Window).allow("k") }
		for _, c := range []struct {
			limit store.Limit
			after time.Duration
		}{
			{store.Limit{Quota: 1, Window: 24 * time.Hour}, time.Hour},
			{store.Limit{Quota: 1, Window: time.Hour}, 30 * time.Minute},
			{store.Limit{Quota: 1, Window: time.Minute}, 30 * time.Second},
			{store.Limit{Quota: 1, Window: time.Second}, 30 * time.Second},
			{store.Limit{Quota: 2, Window: 24 * time.Hour}, 30 * time.Second},
		} {
			if take(c.limit); time.Duration(s.timerAt.Load()) != c.after {
				t.Errorf("%v: the timer fires after %v, want %v", c.limit, time.Duration(s.timerAt.Load()), c.after)
			}
		}
		time.Sleep(25 * time.Hour)
		synctest.Wait()
		if s.Keys() != 0 || s.timerAt.Load() != noTimer {
			t.Errorf("%d keys, a timer at %v", s.Keys(), time.Duration(s.timerAt.Load()))
		}
	})
}

// A shared log has no place: that one is removed lets no key in, and the sweep goes on to a log that has one.
func TestSweepPassesSharedLogs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(2)
		short, long := newPolicy(s, "p", 5, time.Second), newPolicy(s, "p", 5, time.Hour)
		inShard := func(shard uint64) string {
			for i := 0; ; i++ {
				if text := fmt.Sprint(i); textKey(short.ns, text).Hash()%shardCount == shard {
					return text
				}
			}
		}
		long.allow(inShard(50))
		short.allow(inShard(20))
		short.allow(inShard(10)) // there is no place
		time.Sleep(2 * time.Second)
		if short.allow(inShard(30)); s.Shared() != 1 {
			t.Errorf("%d keys share logs, though one was idle", s.Shared())
		}
	})
}

// A shared log whose only take was undone is removed long before its window ends, as one of a key's own is.
func TestSharedLogLeavesWhenItIsUndone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(1)
		l := newPolicy(s, "p", 5, time.Hour)
		l.allow("own")
		id, _ := l.take("shares", 1, store.ModeCharge)
		if s.sharedLogs.Load() != 1 {
			t.Fatal("the key shares no log")
		}
		s.sweepAll() // looks again when the take has left
		s.Settle(&store.Settlement{Key: *textKey(l.ns, "shares"), ID: id})
		s.sweepAll()
		if n := s.sharedLogs.Load(); n != 0 {
			t.Errorf("%d shared logs", n)
		}
	})
}
