package benchmarks

import (
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"runtime"
	"sync/atomic"
	"testing"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/nethttp"
)

// wide never denies, and its log of a hot key stays as long as it is: some
// thousand entries, of which as many leave as come.
var wide = core.Limit{Quota: 1_000_000, Window: core.MinWindow}

// BenchmarkMemory is one check in the process's own memory.
func BenchmarkMemory(b *testing.B) {
	for _, c := range []struct {
		name    string
		policy  core.Policy // nil is the floor
		keys    int
		allowed bool
	}{
		{"hot/floor", nil, 1, true},
		{"hot/allow", wide, 1, true},
		{"hot/deny", core.PerHour(1), 1, false},
		{"keys=100000/floor", nil, 100_000, true},
		{"keys=100000/allow", core.PerSecond(1000), 100_000, true},
		{"keys=100000/deny", core.PerHour(1), 100_000, false},
	} {
		prepare := func(b *testing.B) (check, []string) {
			order := keys(c.keys)
			ask := floorMemory()
			if c.policy != nil {
				var err error
				if ask, err = sash(c.policy); err != nil {
					b.Fatal(err)
				}
			}
			for _, key := range order { // making a log is measured elsewhere, and a quota of 1 is now used up
				if ok, err := ask(b.Context(), key); !ok || err != nil {
					b.Fatal(ok, err)
				}
			}
			// Only now, or memory would lie in the order in which it is asked for.
			rand.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
			runtime.GC()
			b.ReportAllocs()
			return ask, order
		}
		b.Run(c.name+"/goroutines=1", func(b *testing.B) {
			ask, order := prepare(b)
			ctx := b.Context()
			i := 0
			for b.Loop() {
				ok, err := ask(ctx, order[i])
				if ok != c.allowed || err != nil {
					b.Fatal(ok, err)
				}
				if i++; i == len(order) {
					i = 0
				}
			}
		})
		b.Run(c.name+"/goroutines=64", func(b *testing.B) {
			ask, order := prepare(b)
			ctx := b.Context()
			b.SetParallelism(max(1, 64/runtime.GOMAXPROCS(0)))
			var worker atomic.Int64
			b.ResetTimer()
			b.RunParallel(func(pb *testing.PB) {
				i := int(worker.Add(1)) * 7919 % len(order) // each begins elsewhere
				for pb.Next() {
					ok, err := ask(ctx, order[i])
					if ok != c.allowed || err != nil {
						b.Error(ok, err)
						return
					}
					if i++; i == len(order) {
						i = 0
					}
				}
			})
		})
	}
}

// BenchmarkMemoryNewKey is the first check of a key: an attacker's every one.
func BenchmarkMemoryNewKey(b *testing.B) {
	names := keys(1 << 18)
	b.ReportAllocs()
	var ask check
	i := len(names)
	for b.Loop() {
		if i == len(names) { // all known: begin anew
			b.StopTimer()
			var err error
			if ask, err = sash(core.PerHour(10)); err != nil {
				b.Fatal(err)
			}
			i = 0
			b.StartTimer()
		}
		if ok, err := ask(b.Context(), names[i]); !ok || err != nil {
			b.Fatal(ok, err)
		}
		i++
	}
}

// BenchmarkMemoryMiddleware is a whole request through nethttp, beside the
// handler alone.
func BenchmarkMemoryMiddleware(b *testing.B) {
	handler := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) })
	for _, c := range []struct {
		name   string
		h      http.Handler
		status int
	}{
		{"bare", handler, http.StatusOK},
		{"allow", nethttp.New(wide, core.ByIP())(handler), http.StatusOK},
		{"allow, no header fields", nethttp.New(wide, core.ByIP(), core.WithHeaders(core.HeadersNone))(handler), http.StatusOK},
		{"deny", nethttp.New(core.PerHour(1), core.ByIP())(handler), http.StatusTooManyRequests},
	} {
		b.Run(c.name, func(b *testing.B) {
			r := httptest.NewRequest(http.MethodGet, "/", nil)
			w := &discard{header: make(http.Header)}
			c.h.ServeHTTP(w, r)
			b.ReportAllocs()
			for b.Loop() {
				clear(w.header)
				c.h.ServeHTTP(w, r)
			}
			if w.status != c.status {
				b.Fatalf("status %d", w.status)
			}
		})
	}
}
