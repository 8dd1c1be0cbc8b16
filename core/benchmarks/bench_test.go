package main

import (
	"bytes"
	"net/http"
	"os"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/coretest/redistest"
	"github.com/sashlimit/sash/core/internal/allocs"
)

// These benchmarks are for benchstat, to compare two versions of one limiter.
// To compare limiters, use the command, which gives them their turns.

// BenchmarkRedis measures one check in Redis.
func BenchmarkRedis(b *testing.B) {
	for _, c := range inRedis(connect(b)) {
		b.Run(c.name, func(b *testing.B) {
			one := limit{quota: 100_000, window: 100 * time.Millisecond}
			many := limit{quota: 1000, window: 100 * time.Millisecond}
			b.Run("keys=1", func(b *testing.B) { each(b, c, one, 1) })
			b.Run("keys=1000", func(b *testing.B) { each(b, c, many, 1000) })
		})
	}
}

// BenchmarkMemory measures one check in the process's own memory.
func BenchmarkMemory(b *testing.B) {
	for _, c := range inMemory() {
		b.Run(c.name, func(b *testing.B) {
			one := limit{quota: 10_000_000, window: time.Second}
			many := limit{quota: 10_000_000, window: time.Minute}
			b.Run("keys=1", func(b *testing.B) { each(b, c, one, 1) })
			b.Run("keys=100000", func(b *testing.B) { each(b, c, many, 100_000) })
		})
	}
}

// BenchmarkRequest is one request through each framework.
func BenchmarkRequest(b *testing.B) {
	for _, f := range frameworks {
		for _, c := range []struct {
			name string
			do   request
		}{
			{"alone", f.bare()},
			{"sash", f.sash(core.Limit{Quota: 10_000, Window: core.MinWindow})},
			{"sash, denied", f.sash(core.Limit{Quota: 1, Window: time.Hour})},
			{f.other, f.limit(limit{quota: 10_000_000, window: time.Second})},
		} {
			b.Run(f.name+"/"+c.name, func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					c.do()
				}
			})
		}
	}
}

func each(b *testing.B, c contestant, lim limit, n int) {
	lim.keys = n
	all := names(n)
	for _, workers := range []int{1, 64} {
		b.Run("goroutines="+number(float64(workers)), func(b *testing.B) {
			l, err := c.make(lim)
			if err != nil {
				b.Fatal(err)
			}
			defer l.end()
			for _, key := range all {
				ask(b, l, key)
			}
			b.ReportAllocs()
			b.ResetTimer()
			if workers == 1 {
				i := 0
				for b.Loop() {
					ask(b, l, all[i*7919%n])
					i++
				}
				return
			}
			b.SetParallelism(max(1, workers/runtime.GOMAXPROCS(0)))
			var worker atomic.Int64
			b.RunParallel(func(pb *testing.PB) {
				for i := int(worker.Add(1)) * 104_729; pb.Next(); i++ {
					ask(b, l, all[i*7919%n])
				}
			})
		})
	}
}

func ask(b *testing.B, l limiter, key string) {
	if _, err := l.check(b.Context(), key); err != nil {
		b.Error(err)
	}
}

func connect(tb testing.TB) *redis.Client {
	rdb := redis.NewClient(&redis.Options{Addr: redistest.Start(tb).Addr()})
	tb.Cleanup(func() { rdb.Close() })
	return rdb
}

// TestLimit checks that every contestant does limit.
func TestLimit(t *testing.T) {
	rdb := connect(t)
	for name, contestants := range map[string][]contestant{
		"redis": append(inRedis(rdb), algorithms(rdb)...), "memory": inMemory(),
	} {
		for _, c := range contestants {
			if c.kind == floor {
				continue
			}
			t.Run(name+"/"+c.name, func(t *testing.T) {
				l, err := c.make(limit{quota: 2, window: time.Hour})
				if err != nil {
					t.Fatal(err)
				}
				defer l.end()
				for i, want := range []bool{true, true, false, false} {
					if got, err := l.check(t.Context(), c.name); got != want || err != nil {
						t.Errorf("check %d of a quota of 2: %v, %v", i+1, got, err)
					}
				}
			})
		}
	}
	for _, f := range frameworks {
		for name, do := range map[string]request{
			"sash":  f.sash(core.PerHour(2)),
			f.other: f.limit(limit{quota: 2, window: time.Hour}),
		} {
			for i, want := range []int{http.StatusOK, http.StatusOK, http.StatusTooManyRequests} {
				if got := do(); got != want {
					t.Errorf("%s, %s: request %d of a quota of 2: %d", f.name, name, i+1, got)
				}
			}
		}
	}
}

// TestAllocs keeps what a limiter allocates for a request, beyond the handler's own.
func TestAllocs(t *testing.T) {
	most := map[string]struct{ allowed, denied float64 }{
		"net/http": {1, 7}, "gin": {1, 8}, "echo": {3, 12}, "fiber": {1, 6},
	}
	for _, f := range frameworks {
		perRequest := func(do request, status int) float64 {
			do()
			return allocs.PerRun(1000, func() {
				if got := do(); got != status {
					t.Fatalf("%s: status %d, not %d", f.name, got, status)
				}
			})
		}
		alone := perRequest(f.bare(), http.StatusOK)
		if n := perRequest(f.sash(core.PerHour(10_000)), http.StatusOK) - alone; n > most[f.name].allowed {
			t.Errorf("%s: %v allocations for a request that is allowed", f.name, n)
		}
		if n := perRequest(f.sash(core.PerHour(1)), http.StatusTooManyRequests) - alone; n > most[f.name].denied {
			t.Errorf("%s: %v allocations for a request that is denied", f.name, n)
		}
	}
}

func TestNumber(t *testing.T) {
	for f, want := range map[float64]string{
		0: "0", 0.001: "0", 0.04: "0.04", 1: "1", 1.001: "1", 1.234: "1.23", 12.34: "12.3", 22: "22", 123.4: "123",
		-0.5:   "-0.50",
		56_768: "56,800", 999_600: "1 M", 13_875_599: "13.9 M", -1234: "-1,230",
	} {
		if got := number(f); got != want {
			t.Errorf("number(%v) = %s, not %s", f, got, want)
		}
	}
}

// TestResults has README.md and the charts show the results.
func TestResults(t *testing.T) {
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"speed", "leases"} {
		r, err := lastResults(".", name)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(readme), "<!-- "+name+" -->\n"+r.markdown()+"<!-- end of ") {
			t.Errorf("README.md has other tables than results/%s.json: do \"go run . -draw\" and \"... leases\"", name)
		}
		for _, c := range r.charts() {
			drawn := c.svg()
			wellFormed(t, c.file, drawn)
			if chart, err := os.ReadFile("charts/" + c.file + ".svg"); err != nil || !bytes.Equal(chart, drawn) {
				t.Errorf("charts/%s.svg shows other results: %v", c.file, err)
			}
		}
	}
}
