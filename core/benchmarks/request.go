package main

import (
	"fmt"
	"net/http"
	"runtime"
	"time"

	"github.com/sashlimit/sash/core"
)

// requests measures whole requests: what a limiter in the process's own memory adds to a handler that does nothing.
func (r *run) requests() {
	t := r.table("request", "A whole request: what a limiter adds to the handler alone", "")
	type turn struct {
		row    *Row
		make   func() request
		prefix string        // of its columns: of denied requests
		fill   time.Duration // until its log is as long as it will be
	}
	const denied = "denied: "
	roomy, narrow := limit{quota: core.MaxQuota, window: time.Second}, limit{quota: 2, window: time.Hour}
	for _, f := range frameworks {
		alone := t.named(f.name+": the handler alone", floor)
		own := t.named(f.name+": sash", exact)
		other := t.named(f.name+": "+f.other, f.kind)
		turns := []turn{
			{row: alone, make: f.bare},
			{row: own, make: func() request { return f.sash(one(roomy)) }, fill: roomy.window},
			{row: other, make: func() request { return f.limit(roomy) }},
			{row: own, make: func() request { return f.sash(one(narrow)) }, prefix: denied},
			{row: other, make: func() request { return f.limit(narrow) }, prefix: denied},
		}
		r.say("a request through %s", f.name)
		for range r.more() {
			var bare cost
			for i, turn := range turns {
				do := turn.make() // anew, so that nobody's heap holds the logs of the others
				c, err := do.measure(max(turn.fill, r.span/32), r.span/3, turn.prefix == denied)
				if err != nil {
					turn.row.fault(turn.prefix+"added ns", err)
					continue
				}
				if turn.prefix == "" {
					turn.row.add("ns", c.ns)
				}
				if i == 0 {
					bare = c
					continue
				}
				turn.row.add(turn.prefix+"added ns", c.ns-bare.ns)
				turn.row.add(turn.prefix+"added B", c.bytes-bare.bytes)
				turn.row.add(turn.prefix+"added allocs", c.allocs-bare.allocs)
			}
		}
	}
}

// cost is that of one request.
type cost struct{ ns, bytes, allocs float64 }

func (do request) measure(warm, span time.Duration, denied bool) (cost, error) {
	want := http.StatusOK
	if denied {
		want = http.StatusTooManyRequests
		do()
		do()
	}
	if _, err := do.repeat(warm, want); err != nil {
		return cost{}, err
	}
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	start := time.Now()
	n, err := do.repeat(span, want)
	elapsed := time.Since(start)
	runtime.ReadMemStats(&after)
	return cost{
		ns:     float64(elapsed) / n,
		bytes:  float64(after.TotalAlloc-before.TotalAlloc) / n,
		allocs: float64(after.Mallocs-before.Mallocs) / n,
	}, err
}

// repeat sends requests for a while. Another status than the given one is an error, because it would be other work.
func (do request) repeat(span time.Duration, status int) (n float64, err error) {
	for start := time.Now(); time.Since(start) < span; n += 64 { // the clock is not the limiter's
		for range 64 {
			if got := do(); got != status {
				return n, fmt.Errorf("status %d, not %d", got, status)
			}
		}
	}
	return n, nil
}
