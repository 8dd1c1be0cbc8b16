package core_test

import (
	"context"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/adapter"
	"github.com/sashlimit/sash/core/internal/testlen"
)

// A cost beyond all bounds overflows no sum, neither of the log nor of the answer.
func TestHugeCost(t *testing.T) {
	limit := core.PerHour(10)
	l := newLimiter(t, core.LimitBy(func(context.Context) core.Limits { return core.Limits{limit} }))
	if d, err := l.AllowN(t.Context(), "k", 10); err != nil || !d.Allowed {
		t.Fatal(d, err)
	}
	limit = core.PerHour(5)
	for _, cost := range []int{math.MaxInt, math.MaxInt - 1, math.MaxInt32, 6} {
		d, err := l.AllowN(t.Context(), "k", cost)
		if d.Allowed || err == nil || d.Remaining != 0 || d.Used != 10 || len(d.Violated) != 1 || d.RetryAfter != 0 {
			t.Errorf("cost %d: %+v, %v", cost, d, err)
		}
		h := http.Header{}
		if d.SetHeaders(h); h.Get("RateLimit") != `"5-per-hour";r=0` {
			t.Errorf("cost %d: RateLimit %q", cost, h.Get("RateLimit"))
		}
	}
}

// onHeap is a response's header as a server makes it; a local one would stay on the stack, where
// nothing is freed.
func onHeap() http.Header {
	sink = make(http.Header)
	return sink
}

var sink http.Header

// The in-flight token of a handler that goes on after its response, as behind a timeout, must not be found by a later
// request.
func TestInFlightTokensAreNotMistaken(t *testing.T) {
	counted := atomic.Int64{}
	r := from("203.0.113.9:1")
	observer := core.WithObserver(func(context.Context, core.Event) { counted.Add(1) })
	byIP, err := core.New(core.PerHour(1), core.ByIP(), observer)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 2000 { // never closed, and not referenced elsewhere
		other := from("198.51.100." + strconv.Itoa(i%250+1) + ":1")
		byIP.Check(other)
	}
	runtime.GC()
	before := counted.Load()
	admitted := 0
	for range 20_000 {
		d, err := byIP.Check(r)
		if err != nil {
			t.Fatal(err)
		}
		if d.Allowed {
			admitted++
		}
		d.Serve(func() int { return 200 })
	}
	if n := counted.Load() - before; n != 20_000 || admitted != 1 {
		t.Errorf("%d of 20000 counted, %d admitted; want all, and 1", n, admitted)
	}
}

// Names that a callback returns may live in a buffer that is used again.
func TestNamesAreCopied(t *testing.T) {
	buffer := []byte("plan-a")
	l, err := core.New(core.LimitBy(func(*http.Request) core.Limits {
		return core.Limits{{Quota: 5, Window: time.Minute, Name: unsafeString(buffer)}}
	}), core.Global())
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		d, err := l.Check(from("203.0.113.9:1"))
		if err != nil {
			t.Fatal(err)
		}
		copy(buffer, "\r\nX:\"!")
		h := http.Header{}
		d.SetHeaders(h)
		for _, name := range []string{"RateLimit", "RateLimit-Policy"} {
			if got := h.Get(name); !strings.HasPrefix(got, `"plan-a"`) {
				t.Errorf("%s %q", name, got)
			}
		}
		copy(buffer, "plan-a")
	}
}

// Where policies share a store that is full, each has the overflow to itself.
func TestSharedLogsArePerPolicy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := core.NewMemoryStore(core.WithMaxKeys(1))
		day := newLimiter(t, core.PerDay(5), core.WithStore(store))
		second := newLimiter(t, core.PerSecond(1000), core.WithStore(store))
		if _, err := second.Allow(t.Context(), "first"); err != nil {
			t.Fatal(err)
		}
		for i := range 20_000 {
			if d, err := second.Allow(t.Context(), "busy "+strconv.Itoa(i)); err != nil || !d.Allowed {
				t.Fatal(d, err)
			}
		}
		for i := range 20 {
			if d, err := day.Allow(t.Context(), strconv.Itoa(i)); err != nil || !d.Allowed {
				t.Errorf("key %d is denied for what another policy has admitted: %+v, %v", i, d, err)
			}
		}
	})
}

// After a flood, a key that was not part of it gets a log of its own again. Which buckets are looked at depends on how
// keys are hashed, so of 3,200 clients a few may share a log.
func TestPlacesAreFreedAfterAFlood(t *testing.T) {
	testlen.SkipRace(t)
	denied, shared := 0, 0
	for round := range 8 {
		synctest.Test(t, func(t *testing.T) {
			store := core.NewMemoryStore(core.WithMaxKeys(1000))
			l := newLimiter(t, core.PerMinute(1), core.WithStore(store))
			ask := func(who string, i int) bool {
				d, err := l.Allow(t.Context(), fmt.Sprint(who, round, "-", i))
				if err != nil {
					t.Fatal(err)
				}
				return d.Allowed
			}
			for i := range 20_000 {
				ask("flood", i)
			}
			for range 4 { // some of them go on
				time.Sleep(31 * time.Second)
				for i := range 500 {
					ask("flood", i)
				}
			}
			before := store.Shared()
			for i := range 400 {
				if !ask("fresh", i) {
					denied++
				}
			}
			shared += int(store.Shared() - before)
		})
	}
	if denied > 0 || shared > 10 {
		t.Errorf("of 3,200 fresh clients %d are denied at their first request, and %d share a log", denied, shared)
	}
}

// A key that shares a log with others only by its hash, and has no units there, takes a free bucket.
func TestNeighboursDoNotKeepAFreshKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := core.NewMemoryStore(core.WithMaxKeys(1))
		l := newLimiter(t, core.PerMinute(1), core.WithStore(store))
		for i := range 20_000 { // until each shared log is full
			if _, err := l.Allow(t.Context(), strconv.Itoa(i)); err != nil {
				t.Fatal(err)
			}
		}
		if err := l.Reset(t.Context(), "0"); err != nil || store.Keys() != 0 {
			t.Fatalf("%d keys, %v", store.Keys(), err)
		}
		if d, err := l.Allow(t.Context(), "fresh"); err != nil || !d.Allowed {
			t.Errorf("a free place, and a fresh key is denied: %+v, %v", d, err)
		}
	})
}

// A slice that is used again does not change a key that was made of it.
func TestKeysAreCopied(t *testing.T) {
	for name, join := range map[string]func(...core.Key) core.Key{"First": core.First, "Join": core.Join} {
		keys := []core.Key{core.ByIP(), core.Global()}
		key := join(keys...)
		before, err := keyOf(t, key, from("203.0.113.9:1"))
		if err != nil {
			t.Fatal(err)
		}
		keys[0] = core.Key{}
		if after, err := keyOf(t, key, from("203.0.113.9:1")); err != nil || after != before {
			t.Errorf("%s: key %s, then %s, %v", name, before, after, err)
		}
	}
}

// One idle key must not hold the only place for ever, wherever its hash lies.
func TestIdleKeyGivesItsPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := core.NewMemoryStore(core.WithMaxKeys(1))
		l := newLimiter(t, core.PerMinute(1), core.WithStore(store))
		for i := range 300 {
			if d, err := l.Allow(t.Context(), strconv.Itoa(i)); err != nil || !d.Allowed {
				t.Fatal(d, err)
			}
			time.Sleep(2 * time.Minute)
		}
		if n := store.Shared(); n > 0 {
			t.Errorf("%d of 300 solitary clients had to share a log", n)
		}
	})
}

func TestForgottenFlush(t *testing.T) {
	w := httptest.NewRecorder()
	adapter.Refuse(w, http.StatusTooManyRequests, func(w http.ResponseWriter) {
		if err := http.NewResponseController(w).Flush(); err != nil {
			t.Error(err)
		}
	})
	if w.Code != http.StatusTooManyRequests || !w.Flushed {
		t.Errorf("status %d, flushed %v", w.Code, w.Flushed)
	}
}

func unsafeString(b []byte) string { return unsafe.String(&b[0], len(b)) }
