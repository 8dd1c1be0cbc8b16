package core_test

import (
	"context"
	"math"
	"net/http"
	"strconv"
	"testing"
	"testing/synctest"
	"unsafe"

	"github.com/sashlimit/sash/core"
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

// Where policies share a store that is full, each has the overflow to itself.
func TestSharedLogsArePerPolicy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := core.NewMemoryStore(core.WithMaxKeys(1))
		day := newLimiter(t, core.PerDay(5), core.WithStore(store))
		busy := newLimiter(t, core.PerDay(1_000_000), core.WithStore(store))
		if _, err := busy.Allow(t.Context(), "first"); err != nil {
			t.Fatal(err)
		}
		for i := range 20_000 {
			if d, err := busy.Allow(t.Context(), "busy "+strconv.Itoa(i)); err != nil || !d.Allowed {
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
		must(t, err)
		keys[0] = core.Key{}
		if after, err := keyOf(t, key, from("203.0.113.9:1")); err != nil || after != before {
			t.Errorf("%s: key %s, then %s, %v", name, before, after, err)
		}
	}
}

func unsafeString(b []byte) string { return unsafe.String(&b[0], len(b)) }
