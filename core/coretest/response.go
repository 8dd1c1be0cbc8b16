package coretest

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/adapter"
	"github.com/sashlimit/sash/core/internal/testlen"
)

// maxWait bounds waits that end at once unless an adapter is broken.
const maxWait = 30 * time.Second

type mount = func(next http.Handler, limiters ...*core.Limiter) http.Handler

const (
	same  = 0  // as the client gets
	other = -1 // whatever
	gone  = adapter.StatusClientClosedRequest
)

// responseTable is what handlers do, the status that the client gets, which is 0 if the connection is cut, and that
// which WithRefund gets.
var responseTable = []struct {
	desc          string
	client, asked int
	serve         http.HandlerFunc
}{
	{"nothing", 200, same, silent},
	{"404", 404, same, sends(404)},
	{"a body that is copied", 200, same, writes(func(w http.ResponseWriter) { io.Copy(w, strings.NewReader(text)) })},
	{"an error before the first byte", 500, same, writes(func(w http.ResponseWriter) {
		if _, err := io.Copy(w, iotest.ErrReader(io.ErrUnexpectedEOF)); err != nil {
			http.Error(w, "down", 500)
		}
	})},
	{"nothing copied", 404, same, writes(func(w http.ResponseWriter) {
		io.Copy(w, strings.NewReader(""))
		w.WriteHeader(404)
	})},
	{"events, and a status too late", 200, same, writes(func(w http.ResponseWriter) {
		w.Header().Set("Content-Type", "text/event-stream")
		for range 3 {
			io.WriteString(w, "data: 1\n\n")
			flush(w)
		}
		w.WriteHeader(500)
	})},
	// Frameworks differ in which of several statuses they send, and echo sends only the first.
	{"two statuses", other, same, sends(404, 500)},
	{"an empty write", other, same, writes(func(w http.ResponseWriter) { w.Write(nil); w.WriteHeader(404) })},
	{"early hints alone", other, same, sends(103)},
	{"103, then 404", other, same, sends(103, 404)},
	{"a panic", 0, 500, panics},
	{"a panic after a body", 201, same, writes(func(w http.ResponseWriter) {
		w.WriteHeader(201)
		w.Write(make([]byte, 64<<10))
		panic("boom")
	})},
	{"http.ErrAbortHandler after a flush", 200, same, writes(func(w http.ResponseWriter) {
		w.WriteHeader(200)
		flush(w)
		panic(http.ErrAbortHandler)
	})},

	// The client may leave to get a refund.
	{"left: nothing", 0, gone, leaves(nil, silent)},
	{"left: a header alone", 0, gone, leaves(nil, sends(502))},
	{"left: a panic", 0, gone, leaves(nil, panics)},
	{"left: 200 all the same", 0, 200, leaves(nil, served)},
	{"left: 404 all the same", 0, 404, leaves(nil, http.NotFound)},
	{"left: after a header was sent", 0, 200, leaves(silent, served)},
	{"left: after 404 was sent", 0, 404, leaves(http.NotFound, silent)},
	{"left: after 200 was sent, and a panic", 0, 200, leaves(served, panics)},

	{"HTTP/1: Goexit", 0, 500, writes(func(http.ResponseWriter) { runtime.Goexit() })},
	{"HTTP/1: a hijack", 0, other, drops},
	{"HTTP/1: an upgrade", 101, same, upgrades},
	{"HTTP/1: an upgrade by http.Hijacker", 101, same, writes(func(w http.ResponseWriter) {
		echo(w.(http.Hijacker).Hijack())
	})},
	{"HTTP/1: an upgrade and a panic", 101, same, writes(func(w http.ResponseWriter) {
		upgrades(w, nil)
		panic("boom")
	})},
}

func writes(f func(w http.ResponseWriter)) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { f(w) }
}

func sends(statuses ...int) http.HandlerFunc {
	return writes(func(w http.ResponseWriter) {
		for _, status := range statuses {
			w.WriteHeader(status)
		}
	})
}

func flush(w http.ResponseWriter) { http.NewResponseController(w).Flush() }

// leaves is a handler whose client leaves, after what first has sent if it is not nil.
func leaves(first, then http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if first != nil {
			first(w, r)
			flush(w)
		}
		hangUp(r.Context())
		<-r.Context().Done()
		then(w, r)
	}
}

var (
	silent = writes(func(http.ResponseWriter) {})
	served = writes(func(w http.ResponseWriter) { io.WriteString(w, text) })
	panics = writes(func(http.ResponseWriter) { panic("boom") })
	drops  = writes(func(w http.ResponseWriter) { // the connection, which it takes over
		if c, _, err := http.NewResponseController(w).Hijack(); err == nil {
			c.Close()
		}
	})
	upgrades = writes(func(w http.ResponseWriter) { echo(http.NewResponseController(w).Hijack()) })
)

// upgradeFields are of a request for an upgrade, and of its answer.
const upgradeFields = "Connection: Upgrade\r\nUpgrade: echo\r\n"

// echo answers a request for an upgrade, and then sends what it receives.
func echo(c net.Conn, in io.Reader, err error) {
	if err != nil {
		return
	}
	defer c.Close()
	io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\n"+upgradeFields+"\r\n")
	io.Copy(c, in)
}

// checkEcho checks that the other end is [echo].
func checkEcho(t *testing.T, desc string, in io.Reader, out io.Writer) {
	t.Helper()
	answer := make([]byte, 5)
	io.WriteString(out, "ping\n")
	if _, err := io.ReadFull(in, answer); string(answer) != "ping\n" {
		t.Errorf("%s: the connection says %q, %v", desc, answer, err)
	}
}

// responses checks that WithRefund gets the status that was sent, or [gone] if the client had left before, and that no
// permit is left behind: of two limiters, many times.
func responses(t *testing.T, m mount) {
	for protocol, two := range map[string]bool{"HTTP1": false, "HTTP2": true} {
		t.Run(protocol, func(t *testing.T) {
			for _, c := range responseTable {
				if two && strings.HasPrefix(c.desc, "HTTP/1") {
					continue
				}
				t.Run(c.desc, func(t *testing.T) {
					e := newRefundServer(t, m, two, c.serve)
					for range testlen.Of(10, 200) {
						client, asked := e.exchange(t, c.client == 101)
						want := c.asked
						if want == same {
							want = client
						}
						if client != c.client && c.client != other || asked != want && want != other {
							t.Errorf("status %d, asked about %d; want %d, %d", client, asked, c.client, want)
						}
					}
				})
			}
		})
	}
}

// refundServer serves a handler behind two limiters of one request at a time, of which the inner one refunds each.
type refundServer struct {
	inner, outer *core.Limiter
	server       *httptest.Server
	asked        chan int      // the statuses that WithRefund gets, of the outer limiter negative
	left         chan struct{} // receives when the client is to leave
	ended        chan struct{} // receives when a request has been served and refunded
}

func newRefundServer(t *testing.T, m mount, two bool, h http.HandlerFunc) *refundServer {
	t.Helper()
	e := &refundServer{asked: make(chan int, 9), left: make(chan struct{}, 1), ended: make(chan struct{}, 9)}
	limit := func(name string, sign int) *core.Limiter {
		return limiterFor(t, core.NewMemoryStore(), core.Limits{core.PerHour(300), core.InFlight(1)}, core.ByIP(),
			core.WithName(name), core.WithRefund(func(_ context.Context, status int) bool {
				e.asked <- sign * status
				return sign > 0
			}))
	}
	e.outer, e.inner = limit("outer", -1), limit("inner", 1)
	limited := m(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if e.permits(t) != 2 {
			t.Error("no permits are held while the handler runs")
		}
		h(w, r)
	}), e.outer, e.inner)
	e.server = startServer(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() { e.ended <- struct{}{} }()
		limited.ServeHTTP(w, r.WithContext(withHangUp(r.Context(), func() { e.left <- struct{}{} })))
	}), two)
	return e
}

// permits are those that are held of both limiters.
func (e *refundServer) permits(t *testing.T) (n int) {
	t.Helper()
	for _, l := range []*core.Limiter{e.outer, e.inner} {
		d, err := l.Peek(context.WithoutCancel(t.Context()), "127.0.0.1")
		if err != nil {
			t.Fatal(err)
		}
		if n += d.Limits()[1].Used; l == e.inner && d.Limits()[1].Used == 0 && d.Limits()[0].Used > 0 {
			t.Errorf("%d units used, want them given back although a context is done", d.Limits()[0].Used)
		}
	}
	return n
}

// exchange sends a request, and leaves when it is told to. It returns the status that the client gets, and the one that
// both limiters were asked about when the handler had ended, the inner one first.
func (e *refundServer) exchange(t *testing.T, upgrade bool) (client, asked int) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		defer cancel()
		select {
		case <-e.left:
		case <-ctx.Done():
		}
	}()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, e.server.URL, http.NoBody) // a POST is not retried
	if err != nil {
		t.Fatal(err)
	}
	if upgrade {
		r.Header = http.Header{"Connection": {"Upgrade"}, "Upgrade": {"echo"}}
	}
	if response, err := e.server.Client().Do(r); err == nil {
		client = response.StatusCode
		if c, ok := response.Body.(io.ReadWriter); ok {
			checkEcho(t, "upgraded", c, c)
		} else {
			io.Copy(io.Discard, response.Body)
		}
		response.Body.Close()
	}
	if ctx.Err() != nil {
		client = 0 // it may have seen a status, or not
	}
	cancel()
	select {
	case <-e.ended:
	case <-time.After(maxWait):
		t.Fatal("the handler has not ended")
	}
	if n := e.permits(t); n != 0 {
		t.Fatalf("%d permits are left behind", n)
	}
	if len(e.asked) == 0 {
		return client, 0
	}
	inner, outer := <-e.asked, <-e.asked
	if inner != -outer || inner < 0 || len(e.asked) > 0 {
		t.Errorf("asked about %d, then %d, and %d more", inner, outer, len(e.asked))
	}
	return client, inner
}

// copies checks that a server's own request has what handlers have set in theirs, if it has that without limiters: a
// form, since the server removes the files of its own request's form only, and the pattern of a route. WithRefund gets
// the request that handlers get.
func copies(t *testing.T, m mount) {
	asked := 0
	l := limiterFor(t, core.NewMemoryStore(), core.Limits{core.PerHour(9), core.InFlight(1)}, core.ByIP(),
		core.WithDecisionInContext(), core.WithRefund(func(ctx context.Context, _ int) bool {
			asked++
			if _, ok := core.DecisionFrom(ctx); !ok {
				t.Error("the callback of WithRefund gets another request than handlers do")
			}
			return false
		}))
	for desc, end := range map[string]http.HandlerFunc{"return": silent, "panic": panics} {
		left := func(limiters ...*core.Limiter) (hasForm bool, pattern string) {
			const body = "--x\r\nContent-Disposition: form-data; name=f; filename=f\r\n\r\nfile\r\n--x--\r\n"
			r := httptest.NewRequest(http.MethodPost, "/", strings.NewReader(body))
			r.Header.Set("Content-Type", "multipart/form-data; boundary=x")
			h := m(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				r.Pattern += "POST /" // as http.ServeMux does
				if err := r.ParseMultipartForm(1 << 10); err != nil {
					t.Error(err)
				}
				end(w, r)
			}), limiters...)
			func() {
				defer func() { recover() }()
				h.ServeHTTP(httptest.NewRecorder(), r)
			}()
			return r.MultipartForm != nil, r.Pattern
		}
		form, pattern := left(l, l)
		if hasForm, isPattern := left(); form != hasForm || pattern != isPattern {
			t.Errorf("%s: the request has a form: %v, and the pattern %q; without limiters %v, %q",
				desc, form, pattern, hasForm, isPattern)
		}
	}
	if asked != 4 {
		t.Errorf("asked %d times, want 4", asked)
	}
}
