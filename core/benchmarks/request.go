package main

import (
	"fmt"
	"net/http"
	"runtime"
	"time"

	"github.com/sashlimit/sash/core"
)

// framework makes applications that answer GET / with 200 and nothing else,
// alone or behind a limiter that counts by the address of the peer.
type framework struct {
	name  string
	other peer // the framework's own limiter, or the one that most take for it
	bare  func() request
	sash  func(core.Policy) request
	limit func(limit) request // behind other
}

// frameworks have their turns in this order.
var frameworks = []framework{onNetHTTP, onChi, onGin, onEcho, onFiber}

// request sends an application one request, always the same one from the same
// address, and returns the status of the response.
type request func() (status int)

// client is who sends the requests.
const client = "192.0.2.1"

// requests measures whole requests: what a limiter in the process's own memory
// adds to a handler that does nothing.
func (r *run) requests() {
	t := r.table("request", "A whole request: what a limiter adds to the handler alone",
		"ns", "added ns", "added B", "added allocs", "denied: added ns", "denied: added B", "denied: added allocs")
	type turn struct {
		row    *Row
		make   func() request
		denied bool
		fill   time.Duration // until its log is as long as it will be
	}
	roomy, narrow := limit{quota: core.MaxQuota, window: time.Second}, limit{quota: 2, window: time.Hour}
	for _, f := range frameworks {
		sash := func(l limit) request { return f.sash(one(l)) }
		alone := t.named(f.name+": the handler alone", floor)
		own := t.named(f.name+": sash", exact)
		other := t.named(f.name+": "+f.other.name, f.other.kind)
		turns := []turn{
			{row: alone, make: f.bare},
			{row: own, make: func() request { return sash(roomy) }, fill: roomy.window},
			{row: other, make: func() request { return f.limit(roomy) }},
			{row: own, make: func() request { return sash(narrow) }, denied: true},
			{row: other, make: func() request { return f.limit(narrow) }, denied: true},
		}
		r.say("a request through %s", f.name)
		for range r.more() {
			var bare cost
			for i, turn := range turns {
				do := turn.make() // anew, so that nobody's heap holds the logs of the others
				c, err := do.measure(max(turn.fill, r.span/32), r.span/3, turn.denied)
				prefix := ""
				if turn.denied {
					prefix = "denied: "
				}
				switch {
				case err != nil:
					turn.row.fault(prefix+"added ns", err)
					continue
				case !turn.denied:
					turn.row.add("ns", c.ns)
				}
				if i == 0 {
					bare = c
					continue
				}
				turn.row.add(prefix+"added ns", c.ns-bare.ns)
				turn.row.add(prefix+"added B", c.bytes-bare.bytes)
				turn.row.add(prefix+"added allocs", c.allocs-bare.allocs)
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
		for i, want := range []int{http.StatusOK, http.StatusOK, http.StatusTooManyRequests} {
			if got := do(); got != want {
				return cost{}, fmt.Errorf("with a quota of 2, request %d is answered %d, not %d", i+1, got, want)
			}
		}
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

// repeat sends requests for a while. Another status than the given one is an
// error, because it would be other work.
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

// drive sends requests to a handler without a server, whose work would be the
// same for all.
func drive(h http.Handler) request {
	r, err := http.NewRequest(http.MethodGet, "/", http.NoBody)
	if err != nil {
		panic(err)
	}
	r.RemoteAddr = client + ":1234"
	w := &discard{header: make(http.Header)}
	return func() int {
		clear(w.header)
		w.status = 0
		h.ServeHTTP(w, r)
		return w.status
	}
}

// discard is a ResponseWriter that costs nothing itself.
type discard struct {
	header http.Header
	status int
}

func (d *discard) Header() http.Header         { return d.header }
func (d *discard) WriteHeader(status int)      { d.status = status }
func (d *discard) Write(b []byte) (int, error) { return len(b), nil }
