package benchmarks

import (
	"fmt"
	"net/http"
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/sashlimit/sash/core"
)

// BenchmarkRequest is a whole request through each framework: what limiters in
// the process's own memory add to a handler that does nothing.
func BenchmarkRequest(b *testing.B) {
	const large = core.MaxQuota // a second; nothing here does that many
	type contestant struct {
		name   string
		make   func() request
		status int
		fill   time.Duration // until its log is as long as it will be
		bare   int           // which one is its framework's handler alone

		ns, bytes, allocs series
	}
	var contestants []*contestant
	for _, f := range frameworks {
		bare := len(contestants)
		add := func(name string, status int, fill time.Duration, make func() request) {
			contestants = append(contestants, &contestant{name: f.name + ": " + name, make: make, status: status, fill: fill, bare: bare})
		}
		add("the handler alone", http.StatusOK, 0, f.bare)
		add("sash", http.StatusOK, time.Second, func() request { return f.sash(core.PerSecond(large)) })
		add("sash, window 1 ms", http.StatusOK, 0, func() request { return f.sash(wide) })
		add(f.other, http.StatusOK, 0, func() request { return f.limit(large, time.Second) })
		add("sash, denied", http.StatusTooManyRequests, 0, func() request { return exhausted(b, f.name+": sash", f.sash(core.PerHour(2))) })
		add(f.other+", denied", http.StatusTooManyRequests, 0, func() request { return exhausted(b, f.name+": "+f.other, f.limit(2, time.Hour)) })
	}
	for _, c := range contestants { // who does not limit fails here, before the others have run for a minute
		c.make()
	}

	// In a heap of nothing the collector runs ten times as often as beside
	// a long log, and the contestant with the log would be the one to gain.
	heap := make([]byte, 64<<20)
	defer runtime.KeepAlive(heap)

	turns, length := max(5, *rounds), *span/4
	for range turns {
		for _, c := range contestants {
			do := c.make() // anew, so that nobody's heap holds the logs of the others
			if _, err := do.repeat(max(c.fill, length/10), c.status); err != nil {
				b.Fatalf("%s: %v", c.name, err)
			}
			var before, after runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&before)
			start := time.Now()
			n, err := do.repeat(length, c.status)
			elapsed := time.Since(start)
			runtime.ReadMemStats(&after)
			if err != nil {
				b.Fatalf("%s: %v", c.name, err)
			}
			c.ns = append(c.ns, float64(elapsed)/n)
			c.bytes = append(c.bytes, float64(after.TotalAlloc-before.TotalAlloc)/n)
			c.allocs = append(c.allocs, float64(after.Mallocs-before.Mallocs)/n)
		}
	}

	t := table{out: os.Stdout}
	t.row("", "ns", "added ns", "added B", "added allocs")
	for i, c := range contestants {
		bare := contestants[c.bare]
		if i == c.bare {
			t.row(c.name, fixed(0, c.ns.median()), "", "", "")
			continue
		}
		t.row(c.name, fixed(0, c.ns.median()), fixed(0, c.ns.above(bare.ns)), fixed(0, c.bytes.above(bare.bytes)), fixed(1, c.allocs.above(bare.allocs)))
	}
	t.print(fmt.Sprintf("a request, one client, %d rounds of %v", turns, length))
	b.ReportMetric(0, "ns/op") // one operation is the whole table
}

// exhausted makes sure that a limiter with a quota of 2 is one, and leaves it
// with nothing.
func exhausted(b *testing.B, name string, do request) request {
	for i, want := range []int{http.StatusOK, http.StatusOK, http.StatusTooManyRequests} {
		if got := do(); got != want {
			b.Fatalf("%s, quota 2: request %d is answered %d, not %d", name, i+1, got, want)
		}
	}
	return do
}

// repeat sends requests for a while. Another status than the given one is an
// error, because it would be other work.
func (do request) repeat(span time.Duration, status int) (n float64, err error) {
	for start := time.Now(); time.Since(start) < span; n += 64 { // the clock is not the contestant's
		for range 64 {
			if got := do(); got != status {
				return n, fmt.Errorf("status %d, not %d", got, status)
			}
		}
	}
	return n, nil
}
