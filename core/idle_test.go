package core_test

import (
	"errors"
	"math"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/coretest"
	"github.com/sashlimit/sash/core/internal/testlen"
)

// heap returns how many bytes are in use when collections find nothing more to free: pools need two of them, and
// finalizers and goroutines of an earlier test that are about to end need some more.
func heap() int {
	var m runtime.MemStats
	least := math.MaxInt
	for range 20 {
		runtime.GC()
		runtime.ReadMemStats(&m)
		now := int(m.HeapAlloc)
		if now > least-16<<10 {
			return now
		}
		least = now
	}
	return least
}

// alone runs a test in a process of its own, because goroutines of earlier tests may still hold memory, or free it
// while the test measures. It reports whether this is that process.
func alone(t *testing.T) bool {
	t.Helper()
	if os.Getenv("SASH_TEST_ALONE") != "" {
		return true
	}
	child := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
	child.Env = append(os.Environ(), "SASH_TEST_ALONE=1")
	out, err := child.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "--- PASS: "+t.Name()+" ") {
		t.Errorf("%v\n%s", err, out)
	}
	return false
}

// The memory of idle keys is freed within two windows and a minute, whatever the traffic is meanwhile.
func TestIdleMemoryIsGivenBack(t *testing.T) {
	testlen.SkipRace(t)
	if !alone(t) {
		return
	}
	for _, c := range []struct {
		name    string
		policy  core.Policy
		keys    int
		address bool
		within  time.Duration
		every   time.Duration // from one of the other takes to the next; 0 if there are none
		others  int           // keys of these
	}{
		{"a minute, no traffic", core.PerMinute(5), 20_000, false, 3 * time.Minute, 0, 0},
		{"an hour, one other key", core.PerHour(5), 20_000, false, 2*time.Hour + time.Minute, 10 * time.Second, 1},
		{"two limits, no traffic", core.Limits{core.PerSecond(5), core.PerHour(9)},
			20_000, true, 2*time.Hour + time.Minute, 0, 0},
		{"an hour, 1,000 other keys", core.PerHour(5), 20_000, true, 2*time.Hour + time.Minute, time.Second, 1000},
	} {
		inBubble(t, c.name, func(t *testing.T) {
			store := core.NewMemoryStore()
			key := core.ByText()
			if c.address {
				key = core.ByIP()
			}
			l := newLimiterBy(t, c.policy, key, core.WithStore(store))
			name := func(i int) string {
				return strconv.Itoa(11+i%100) + "." + strconv.Itoa(i/100%256) + "." + strconv.Itoa(i/25600) + ".1"
			}
			askOnce(t, l, name(c.keys)) // so that what a store and a limiter need in any case is there
			before := heap()
			for i := range c.keys {
				askOnce(t, l, name(i))
			}
			full := heap()
			if store.Keys() < c.keys || full-before < 150*c.keys { // on 32 bits they take less
				t.Fatalf("%d keys in %d bytes: this test tests nothing", store.Keys(), full-before)
			}
			others := 0
			for begin := time.Now(); time.Since(begin) < c.within; {
				if c.every == 0 {
					time.Sleep(c.within)
					continue
				}
				time.Sleep(c.every)
				askOnce(t, l, name(c.keys+others%c.others))
				others++
			}
			synctest.Wait()
			after := heap()
			t.Logf("%d keys and %d bytes remain of %d; %d other takes", store.Keys(), after-before, full-before, others)
			if store.Keys() > c.others {
				t.Errorf("%d keys remain after %v, of which %d are in use", store.Keys(), c.within, c.others)
			}
			if after-before > 256<<10+1024*c.others {
				t.Errorf("%d bytes remain of %d", after-before, full-before)
			}
		})
	}
}

// A store that is no longer referenced is collected while its timer is pending.
func TestAbandonedStoreIsCollected(t *testing.T) {
	collected := make(chan struct{})
	func() {
		store := core.NewMemoryStore()
		l := newLimiter(t, core.PerDay(5), core.WithStore(store))
		for i := range 1000 {
			askOnce(t, l, strconv.Itoa(i))
		}
		runtime.AddCleanup(store, func(done chan struct{}) { close(done) }, collected)
		runtime.KeepAlive(l)
	}()
	for range 100 {
		runtime.GC()
		select {
		case <-collected:
			return
		default:
			runtime.Gosched()
		}
	}
	t.Error("it is still there after 100 collections")
}

// A store may be made outside of a bubble and used inside, in several bubbles one after the other, and outside again.
func TestStoresAcrossBubbles(t *testing.T) {
	const keys = 1000
	fill := func(t *testing.T, store *core.MemoryStore, who string) {
		l := newLimiter(t, core.PerHour(5), core.WithStore(store))
		for i := range keys {
			askOnce(t, l, who+strconv.Itoa(i))
		}
	}
	// idle reports how many keys are left after two windows and a minute.
	idle := func(store *core.MemoryStore) int {
		time.Sleep(2*time.Hour + time.Minute)
		synctest.Wait()
		return store.Keys()
	}
	t.Run("made outside", func(t *testing.T) {
		store := core.NewMemoryStore()
		synctest.Test(t, func(t *testing.T) {
			fill(t, store, "a")
			if n := idle(store); n != 0 {
				t.Errorf("%d keys remain", n)
			}
			fill(t, store, "b")
		})
	})
	t.Run("two bubbles", func(t *testing.T) {
		var store *core.MemoryStore
		synctest.Test(t, func(t *testing.T) {
			store = core.NewMemoryStore()
			fill(t, store, "a")
		})
		synctest.Test(t, func(t *testing.T) {
			fill(t, store, "b")
			time.Sleep(time.Hour) // until then the first bubble's timer might be this one's
			fill(t, store, "later")
			if n := idle(store); n != 0 {
				t.Errorf("%d keys remain", n)
			}
		})
		synctest.Test(t, func(t *testing.T) {
			fill(t, store, "c")
			time.Sleep(5 * time.Hour) // the log's time is ahead of this bubble's until now
			fill(t, store, "d")
			if n := idle(store); n != 0 {
				t.Errorf("%d keys remain", n)
			}
		})
	})
	t.Run("time stands still", func(t *testing.T) {
		store := core.NewMemoryStore()
		fill(t, store, "outside")
		synctest.Test(t, func(t *testing.T) {
			fill(t, store, "inside")
			time.Sleep(200 * 365 * 24 * time.Hour) // takes for ever if a timer starts itself again and again
		})
	})
}

// What an outage has recorded leaves as well, also where the limiter was closed and brings nothing back.
func TestOutageIsGivenBack(t *testing.T) {
	if !alone(t) {
		return
	}
	synctest.Test(t, func(t *testing.T) {
		store := new(coretest.FakeStore)
		store.Fail(errors.New("down"))
		l := newLimiter(t, core.PerMinute(5), core.WithStore(store), core.WithDenyCache(0))
		askOnce(t, l, "k")
		before := heap()
		for i := range 20_000 {
			askOnce(t, l, strconv.Itoa(i))
		}
		full := heap()
		if err := l.Close(); err == nil {
			t.Error("Close has replayed what the store cannot take")
		}
		time.Sleep(3 * time.Minute)
		synctest.Wait()
		if after := heap(); after-before > 256<<10 || full-before < 2<<20 {
			t.Errorf("%d bytes of %d remain", after-before, full-before)
		}
		d, err := l.Allow(t.Context(), "1") // which ends what l does
		if err != nil || !d.Allowed || !d.Degraded {
			t.Error(d, err)
		}
	})
}
