package core_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/adapter"
	"github.com/sashlimit/sash/core/coretest"
	"github.com/sashlimit/sash/core/internal/allocs"
	"github.com/sashlimit/sash/core/internal/testlen"
)

func TestMemoryStore(t *testing.T) {
	coretest.Store(t, coretest.StoreConfig{
		New: func(*testing.T) coretest.Clocked {
			return coretest.Clocked{Store: core.NewMemoryStore(), Now: time.Now, Advance: time.Sleep}
		},
		Run: func(t *testing.T, f func(*testing.T)) { synctest.Test(t, f) },
	})
}

func inBubble(t *testing.T, name string, f func(*testing.T)) {
	t.Run(name, func(t *testing.T) { synctest.Test(t, f) })
}

// More live keys than places: the keys that have a log keep it, the others
// share some, and nobody ever gets a second quota out of it.
func TestFullStoreKeepsEveryQuota(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const places, attackers, quota = 50, 5000, 3
		store := core.NewMemoryStore(core.WithMaxKeys(places))
		l := newLimiter(t, core.PerMinute(quota), core.WithStore(store))
		allowed := map[string]int{}
		take := func(key string) bool {
			d, err := l.Allow(t.Context(), key)
			if err != nil {
				t.Fatal(err)
			}
			if d.Allowed {
				allowed[key]++
			}
			return d.Allowed
		}
		for take("victim") {
		}
		for i := range attackers {
			take(fmt.Sprint("attacker ", i))
			if i%500 == 0 && take("victim") {
				t.Fatal("a flood of keys reset the victim's log")
			}
		}
		if n := store.Keys(); n != places {
			t.Errorf("%d keys, want %d", n, places)
		}
		if store.Shared() == 0 {
			t.Error("no take was told to have shared a log")
		}
		total := 0
		for key, n := range allowed {
			total += n
			if n > quota {
				t.Errorf("%s: %d admitted, the quota is %d", key, n, quota)
			}
		}
		if most := (places + 64*16) * quota; total > most {
			t.Errorf("%d admitted, more than %d logs allow", total, most/quota)
		}
	})
}

// Who has drawn from a shared log stays with it until his units have left:
// with the next free place he would have a second quota.
func TestNoSecondQuotaOutOfASharedLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := core.NewMemoryStore(core.WithMaxKeys(1))
		l := newLimiter(t, core.PerMinute(1), core.WithStore(store))
		take := func(key string, want bool) {
			t.Helper()
			d, err := l.Allow(t.Context(), key)
			if err != nil || d.Allowed != want {
				t.Errorf("%s: allowed %v, %v; want %v", key, d.Allowed, err, want)
			}
		}
		take("a", true)
		time.Sleep(30 * time.Second)
		take("b", true)
		if err := l.Reset(t.Context(), "a"); err != nil || store.Keys() != 0 {
			t.Fatalf("%d keys, %v", store.Keys(), err)
		}
		take("b", false)
		time.Sleep(30 * time.Second)
		take("b", false)
		time.Sleep(30 * time.Second)
		take("b", true)
		take("b", false)
		if store.Keys() != 1 {
			t.Errorf("%d keys, want b's own log now", store.Keys())
		}
	})
}

func TestIdleKeysLeave(t *testing.T) {
	testlen.SkipRace(t)
	synctest.Test(t, func(t *testing.T) {
		store := core.NewMemoryStore()
		l := newLimiter(t, core.PerMinute(3), core.WithStore(store))
		for i := range 20_000 {
			if _, err := l.Allow(t.Context(), strconv.Itoa(i)); err != nil {
				t.Fatal(err)
			}
		}
		if n := store.Keys(); n != 20_000 {
			t.Fatalf("%d keys, want 20000", n)
		}
		time.Sleep(time.Minute)
		// New keys alone make room faster than they take it.
		for i := range 20_000 {
			if _, err := l.Allow(t.Context(), "new "+strconv.Itoa(i)); err != nil {
				t.Fatal(err)
			}
		}
		if n := store.Keys(); n > 21_000 {
			t.Errorf("%d keys, of which 20000 are live", n)
		}
		time.Sleep(2 * time.Minute) // without new ones, a timer does
		if n := store.Keys(); n > 0 {
			t.Errorf("%d keys, of which none is live", n)
		}
	})
}

// Keys are found without a lock while others come and go around them.
func TestKeysComeAndGo(t *testing.T) {
	const keys, quota, askers = 1000, 3, 4
	store := core.NewMemoryStore()
	steady := newLimiter(t, core.PerHour(quota), core.WithStore(store))
	fleeting := newLimiter(t, core.Limit{Quota: 1, Window: core.MinWindow}, core.WithStore(store))
	var asking, passing sync.WaitGroup
	done := make(chan struct{})
	for n := range 2 {
		passing.Go(func() {
			for i := n; ; i++ {
				select {
				case <-done:
					return
				default:
					key := strconv.Itoa(i % 50_000)
					fleeting.Allow(t.Context(), key)
					if i%3 == 0 {
						fleeting.Reset(t.Context(), key)
					}
				}
			}
		})
	}
	var allowed [keys]atomic.Int32
	for range askers {
		asking.Go(func() {
			for range 2 * quota {
				for _, k := range rand.Perm(keys) {
					if d, err := steady.Allow(t.Context(), strconv.Itoa(k)); err != nil {
						t.Error(err)
					} else if d.Allowed {
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
		if n := allowed[k].Load(); n != quota {
			t.Errorf("key %d was allowed %d of %d", k, n, quota)
		}
	}
}

// Two clients at a shared store: a limiter that asks with a short window must
// not purge what a longer one needs; they have separate logs.
func TestStoreSharedByLimiters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := core.NewMemoryStore()
		short := newLimiter(t, core.PerSecond(100), core.WithStore(store))
		long := newLimiter(t, core.PerHour(5), core.WithStore(store))
		allowed := 0
		for range 50 {
			for _, l := range []*core.Limiter{short, long} {
				d, err := l.Allow(t.Context(), "k")
				if err != nil {
					t.Fatal(err)
				}
				if d.Allowed && l == long {
					allowed++
				}
			}
			time.Sleep(10 * time.Second)
		}
		if allowed != 5 {
			t.Errorf("%d in an hour, want 5", allowed)
		}
	})
}

func TestNothingIsAllocated(t *testing.T) {
	l := newLimiter(t, core.PerSecond(100))
	keys := make([]string, 1000)
	for i := range keys {
		keys[i] = "customer " + strconv.Itoa(i)
		l.Allow(t.Context(), keys[i])
	}
	r := adapter.Request(from("203.0.113.9:4711"))
	byIP, err := core.New(core.PerSecond(1000), core.ByIP())
	if err != nil {
		t.Fatal(err)
	}
	plan := core.Limits{core.PerSecond(100)}
	chosen := newLimiter(t, core.LimitBy(func(context.Context) core.Limits { return plan }))
	observed := newLimiter(t, core.PerSecond(1000), core.WithObserver(func(context.Context, core.Event) {}))
	i := 0
	for _, c := range []struct {
		desc string
		f    func() (core.Decision, error)
	}{
		{"observed", func() (core.Decision, error) { return observed.Allow(t.Context(), "k") }},
		{"one key, mostly denied", func() (core.Decision, error) { return l.Allow(t.Context(), "k") }},
		{"many keys", func() (core.Decision, error) { i++; return l.Allow(t.Context(), keys[i%len(keys)]) }},
		{"peek", func() (core.Decision, error) { return l.Peek(t.Context(), "k") }},
		{"limits by request", func() (core.Decision, error) {
			d, err := chosen.Check(r)
			d.Serve(func() int { return 200 })
			return d, err
		}},
		{"request by address", func() (core.Decision, error) {
			d, err := byIP.Check(r)
			d.Serve(func() int { return 200 })
			return d, err
		}},
	} {
		for range 20_000 { // until the rings have their size
			c.f()
		}
		if n := allocs.PerRun(10_000, func() { c.f() }); n != 0 {
			t.Errorf("%s: %v allocations a decision", c.desc, n)
		}
	}
}

// A decision about two limits keeps what they were asked, which is one allocation.
func TestTwoLimitsAreOneAllocation(t *testing.T) {
	testlen.SkipRace(t)
	l := newLimiter(t, core.Limits{core.PerSecond(100), core.PerMinute(200)})
	ask := func() { l.Allow(t.Context(), "k") }
	for range 20_000 { // until the rings have their size
		ask()
	}
	if n := allocs.PerRun(10_000, ask); n != 1 {
		t.Errorf("%v allocations a decision", n)
	}
}

func newLimiter(t *testing.T, p core.Policy, opts ...core.Option) *core.Limiter {
	t.Helper()
	l, err := core.New(p, core.Global(), opts...)
	if err != nil {
		t.Fatal(err)
	}
	return l
}
