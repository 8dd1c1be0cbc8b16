package coretest

import (
	"net/http"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/sashlimit/sash/core"
)

// requestsInFlight sends 200 requests at once where 10 may be served at a time. The handler counts.
func requestsInFlight(t *testing.T, serve Serve) {
	const requests, permits = 200, 10
	l := limiterFor(t, core.NewMemoryStore(), core.InFlight(permits), byUser)
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
		r.Header.Set("User", "ann")
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
			if !ask() && denied.Add(1) == requests-permits {
				close(gate)
			}
		})
	}
	all.Wait()
	if most.Load() != permits || denied.Load() != requests-permits {
		t.Errorf("%d handlers at a time and %d denied, want %d and %d",
			most.Load(), denied.Load(), permits, requests-permits)
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
	if most.Load() > permits {
		t.Errorf("%d handlers at a time, want %d at most", most.Load(), permits)
	}
	if left := used(t, l); left != 0 { // a response is complete only when the handler has ended
		t.Errorf("%d permits are left behind", left)
	}
}
