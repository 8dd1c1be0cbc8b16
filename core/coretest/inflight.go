package coretest

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sashlimit/sash/core"
)

const slotUser = "ann"

// slotLimiter makes a limiter of n requests at the same time for each user.
func slotLimiter(t *testing.T, n int, opts ...core.Option) *core.Limiter {
	t.Helper()
	l, err := core.New(core.InFlight(n), core.ByHeader("User", core.Unverified), opts...)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// slotsInUse returns how many slots the user's requests hold.
func slotsInUse(t *testing.T, l *core.Limiter) int {
	t.Helper()
	d, err := l.Peek(context.WithoutCancel(t.Context()), slotUser)
	if err != nil {
		t.Fatal(err)
	}
	return d.Used
}

// requestsInFlight sends 200 requests at once where 10 may be served at a time. The handler counts.
func requestsInFlight(t *testing.T, serve Serve) {
	const requests, slots = 200, 10
	l := slotLimiter(t, slots)
	var running, most, denied atomic.Int64
	var full atomic.Bool // handlers end only when all others are denied
	gate := make(chan struct{})
	send := serve(t, func() string {
		now := running.Add(1)
		defer running.Add(-1)
		for {
			if old := most.Load(); now <= old || most.CompareAndSwap(old, now) {
				break
			}
		}
		if full.Load() {
			<-gate
		}
		runtime.Gosched()
		return text
	}, l)
	ask := func() bool {
		r := newRequest(t, http.MethodGet)
		r.Header.Set("User", slotUser)
		response := send(r)
		served := response.StatusCode == http.StatusOK
		if after := response.Header.Get("Retry-After"); !served && (response.StatusCode != 429 || after != "") {
			t.Errorf("status %d, Retry-After %q", response.StatusCode, after)
		}
		if policy := response.Header.Get("RateLimit-Policy"); policy != `"10-in-flight";q=10;qu="concurrent-requests"` {
			t.Errorf("RateLimit-Policy: %s", policy)
		}
		return served
	}
	full.Store(true)
	var all sync.WaitGroup
	for range requests {
		all.Go(func() {
			if !ask() && denied.Add(1) == requests-slots {
				close(gate)
			}
		})
	}
	all.Wait()
	if most.Load() != slots || denied.Load() != requests-slots {
		t.Errorf("%d handlers at a time and %d denied, want %d and %d",
			most.Load(), denied.Load(), slots, requests-slots)
	}
	full.Store(false)
	for range requests { // each until it is served
		all.Go(func() {
			for !ask() {
				runtime.Gosched()
			}
		})
	}
	all.Wait()
	if most.Load() > slots {
		t.Errorf("%d handlers at a time, want %d at most", most.Load(), slots)
	}
	if left := slotsInUse(t, l); left != 0 { // a response is complete only when the handler has ended
		t.Errorf("%d slots are left behind", left)
	}
}

// slotEnding is a way in which handlers end.
type slotEnding struct {
	desc    string
	times   int
	http1   bool
	handler http.HandlerFunc
	outside func(http.Handler) http.Handler // of the limiter, or nil
	leaves  bool                            // the client leaves when the handler has begun
}

func slotEndings(many int) []slotEnding {
	const few = 10
	timeout := func(d time.Duration) func(http.Handler) http.Handler {
		return func(next http.Handler) http.Handler { return http.TimeoutHandler(next, d, "") }
	}
	returns := func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, text) }
	panics := func(http.ResponseWriter, *http.Request) { panic("boom") }
	hijacks := func(w http.ResponseWriter, _ *http.Request) {
		if c, _, err := http.NewResponseController(w).Hijack(); err == nil {
			c.Close()
		}
	}
	return []slotEnding{
		{desc: "return", times: few, handler: returns},
		{desc: "500", times: few, handler: func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "down", 500) }},
		{desc: "panic", times: many, handler: panics},
		{desc: "http.ErrAbortHandler", times: many, handler: func(http.ResponseWriter, *http.Request) {
			panic(http.ErrAbortHandler)
		}},
		{desc: "panic after a flush", times: few, handler: func(w http.ResponseWriter, _ *http.Request) {
			io.WriteString(w, text)
			http.NewResponseController(w).Flush()
			panic("boom")
		}},
		{desc: "Goexit", times: few, http1: true, handler: func(http.ResponseWriter, *http.Request) {
			runtime.Goexit()
		}},
		{desc: "hijack", times: many, http1: true, handler: hijacks},
		{desc: "hijack and panic", times: few, http1: true, handler: func(w http.ResponseWriter, r *http.Request) {
			hijacks(w, r)
			panic("boom")
		}},
		{desc: "events", times: few, leaves: true, handler: func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			for r.Context().Err() == nil {
				io.WriteString(w, "data: 1\n\n")
				http.NewResponseController(w).Flush()
				runtime.Gosched()
			}
		}},
		{desc: "client gone", times: few, leaves: true, handler: func(_ http.ResponseWriter, r *http.Request) {
			<-r.Context().Done()
		}},
		{desc: "timeout inside", times: few, handler: http.TimeoutHandler(http.HandlerFunc(
			func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }), time.Nanosecond, "").ServeHTTP},
		{desc: "timeout outside", times: few, outside: timeout(time.Nanosecond),
			handler: func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }},
		{desc: "panic within a timeout", times: few, outside: timeout(time.Hour), handler: panics},
	}
}

// slotsAfterEndings checks that handlers which end in whatever way leave no slot behind.
func slotsAfterEndings(t *testing.T, m mount) {
	for protocol, two := range map[string]bool{"HTTP1": false, "HTTP2": true} {
		for _, e := range slotEndings(500) {
			if two && e.http1 {
				continue
			}
			t.Run(protocol+"/"+e.desc, func(t *testing.T) { e.run(t, m, two) })
		}
	}
}

// run sends requests one after another, each of which needs the slot of the one before.
func (e *slotEnding) run(t *testing.T, m mount, two bool) {
	l := slotLimiter(t, 1)
	begun, ended := make(chan struct{}, 1), make(chan struct{}, 1)
	limited := m(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if used := slotsInUse(t, l); used != 1 {
			t.Errorf("%d slots are in use while the handler runs", used)
		}
		begun <- struct{}{}
		e.handler(w, r)
	}), l)
	var h http.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() { ended <- struct{}{} }()
		limited.ServeHTTP(w, r)
	})
	if e.outside != nil {
		h = e.outside(h)
	}
	server := httptest.NewUnstartedServer(h)
	server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	if server.EnableHTTP2 = two; two {
		server.StartTLS()
	} else {
		server.Start()
	}
	defer server.Close()
	for i := range e.times {
		ctx, cancel := context.WithCancel(t.Context())
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, server.URL, http.NoBody) // a POST is not retried
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("User", slotUser)
		done := make(chan struct{})
		go func() {
			defer close(done)
			if response, err := server.Client().Do(r); err == nil {
				io.Copy(io.Discard, response.Body)
				response.Body.Close()
			}
		}()
		for _, event := range []chan struct{}{begun, ended} {
			select {
			case <-event:
			case <-time.After(maxWait):
				t.Fatalf("request %d was denied, or has not ended", i+1)
			}
			if e.leaves {
				cancel()
			}
		}
		if left := slotsInUse(t, l); left != 0 {
			t.Fatalf("%d slots are left behind by request %d", left, i+1)
		}
		<-done
		cancel()
	}
}
