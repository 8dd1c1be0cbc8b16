package adapter_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sashlimit/sash/core/adapter"
)

type request struct {
	adapter.Request // nil: nothing else is asked

	ctx context.Context
}

func (r *request) Context() context.Context { return r.ctx }

// toldRequest is a request of a framework whose contexts do not tell that the client has left.
type toldRequest struct {
	request

	gone bool
}

func (r *toldRequest) Gone() bool { return r.gone }

// asked is which statuses a callback was told.
type asked []int

func (a *asked) Status(status int) { *a = append(*a, status) }

// exchange is a response and what happens to it.
type exchange struct {
	adapter.Response

	leave func()
	asked asked
}

type step = func(*exchange)

func sent(status int) step     { return func(e *exchange) { e.Sent(status) } }
func returned(status int) step { return func(e *exchange) { e.End(status, true, &e.asked) } }
func panicked(e *exchange)     { e.End(0, false, &e.asked) }
func leaves(e *exchange)       { e.leave() }

var exchanges = []struct {
	name  string
	steps []step
	want  []int
}{
	{"status, end", []step{sent(200), returned(0)}, []int{200}},
	{"only the first status counts", []step{sent(404), sent(500), returned(503)}, []int{404}},
	{"early hints are no status", []step{sent(103), sent(100), sent(200), returned(0)}, []int{200}},
	{"a connection taken over", []step{sent(101), returned(0)}, []int{101}},
	{"the handler returns the status", []step{returned(503)}, []int{503}},
	{"end, status", []step{returned(0), sent(503)}, []int{503}},
	{"end, statuses", []step{returned(0), sent(103), sent(404), sent(500)}, []int{404}},
	{"end, no status", []step{returned(0)}, nil},
	{"returned, another status", []step{returned(404), sent(500)}, []int{404}},
	{"panic", []step{panicked}, []int{500}},
	{"panic after early hints", []step{sent(103), panicked}, []int{500}},
	{"panic, status of the recovery", []step{panicked, sent(503)}, []int{500}},
	{"status, panic", []step{sent(200), panicked}, []int{200}},

	{"gone, failure", []step{leaves, sent(502), returned(0)}, []int{499}},
	{"gone, status chosen", []step{leaves, sent(404), returned(0)}, []int{404}},
	{"gone, success", []step{leaves, sent(200), returned(0)}, []int{200}},
	{"success, gone", []step{sent(200), leaves, returned(0)}, []int{200}},
	{"failure, gone", []step{sent(502), leaves, returned(0)}, []int{502}},
	{"failure, gone, panic", []step{sent(502), leaves, panicked}, []int{502}},
	{"gone, failure returned", []step{leaves, returned(500)}, []int{499}},
	{"gone, status returned", []step{leaves, returned(404)}, []int{404}},
	{"gone, nothing written", []step{leaves, returned(200)}, []int{499}},
	{"gone, panic", []step{leaves, panicked}, []int{499}},
	{"gone, end, failure", []step{leaves, returned(0), sent(502)}, []int{499}},
	{"gone, end, status chosen", []step{leaves, returned(0), sent(404)}, []int{404}},
	{"end, gone, failure", []step{returned(0), leaves, sent(502)}, []int{502}},
	{"early hints, gone, failure", []step{sent(103), leaves, sent(502), returned(0)}, []int{499}},
}

// A callback is told one status, once, in whatever order the parts of an exchange come.
func TestResponse(t *testing.T) {
	for _, test := range exchanges {
		run := func(how string, r adapter.Request, leave func()) {
			t.Run(how+"/"+test.name, func(t *testing.T) {
				e := &exchange{leave: leave}
				e.Init(r)
				for _, step := range test.steps {
					step(e)
				}
				if !slices.Equal(e.asked, test.want) {
					t.Errorf("told %v, want %v", e.asked, test.want)
				}
			})
		}
		ctx, cancel := context.WithCancel(t.Context())
		run("Context", &request{ctx: ctx}, cancel)

		told := &toldRequest{request: request{ctx: t.Context()}}
		run("Gone", told, func() { told.gone = true })
		cancel()
	}
}

// Only a client that has left cancels a request: a deadline is the server's own, and so is a context that inner
// middleware has put in place of the limiter's. Where a request has the method Gone, its context does not tell.
func TestResponseOfAClientThatStays(t *testing.T) {
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	late, cancelLate := context.WithDeadline(t.Context(), time.Unix(0, 0))
	defer cancelLate()
	inner := &request{ctx: t.Context()}
	for name, r := range map[string]adapter.Request{
		"deadline":      &request{ctx: late},
		"Gone":          &toldRequest{request: request{ctx: canceled}},
		"inner context": inner,
	} {
		t.Run(name, func(t *testing.T) {
			var e exchange
			e.Init(r)
			ctx := r.Context()
			if r == inner {
				inner.ctx = canceled
			}
			if e.Request() != r || e.Context() != ctx {
				t.Error("it has another request or context")
			}
			e.Sent(502)
			if e.End(0, true, &e.asked); !slices.Equal(e.asked, asked{502}) {
				t.Errorf("told %v, want 502", e.asked)
			}
		})
	}
}

// An asker may be nil.
func TestResponseWithoutAsker(t *testing.T) {
	for _, status := range []int{0, 200} {
		var e exchange
		e.Init(&request{ctx: t.Context()})
		e.End(status, true, nil)
		e.Sent(404)
	}
}

type count struct{ atomic.Int64 }

func (c *count) Status(status int) { c.Add(int64(status)) }

// A server may send the header while the handler ends.
func TestResponseSentWhileEnding(t *testing.T) {
	for range 500 {
		var r adapter.Response
		var told count
		r.Init(&request{ctx: t.Context()})
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() { r.Sent(200) })
		}
		r.End(0, true, &told)
		wg.Wait()
		if told.Load() != 200 {
			t.Fatalf("told %d times, want once", told.Load()/200)
		}
	}
}

// A writer that cannot be hijacked gets no method Hijack, nor does one that wraps such a writer.
func TestUpgradeOfWritersWithoutHijack(t *testing.T) {
	for _, w := range []http.ResponseWriter{httptest.NewRecorder(), unwraps{httptest.NewRecorder()}} {
		if got := new(adapter.Response).Upgrade(w); got != w {
			t.Errorf("%T becomes %T", w, got)
		}
	}
}

// One that can has a method Flush if it had one before.
func TestUpgradeFlushesAsBefore(t *testing.T) {
	type writer struct {
		http.ResponseWriter
		http.Hijacker
	}
	type flusher struct {
		writer
		http.Flusher
	}
	for _, w := range []http.ResponseWriter{writer{}, flusher{}} {
		got := new(adapter.Response).Upgrade(w)
		_, flushed := w.(http.Flusher)
		if _, flushes := got.(http.Flusher); flushes != flushed || got == w {
			t.Errorf("%T becomes %T", w, got)
		}
	}
}

// unwraps wraps a writer that cannot be hijacked.
type unwraps struct{ http.ResponseWriter }

func (w unwraps) Unwrap() http.ResponseWriter { return w.ResponseWriter }
