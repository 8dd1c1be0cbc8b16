package nethttp_test

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"time"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/adapter"
	"github.com/sashlimit/sash/core/coretest"
	"github.com/sashlimit/sash/core/event"
	"github.com/sashlimit/sash/nethttp"
)

// maxWait bounds waits that end at once unless something is broken.
const maxWait = time.Minute

func newLimiter(t *testing.T, p core.Policy, opts ...core.Option) *core.Limiter {
	t.Helper()
	l, err := core.New(p, core.ByHeader("User", core.Unverified), opts...)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func used(t *testing.T, l *core.Limiter) int {
	t.Helper()
	d, err := l.Peek(t.Context(), "ann")
	if err != nil {
		t.Fatal(err)
	}
	return d.Used
}

// ann asks as somebody; others go by another name.
func ann(r *http.Request) { r.Header.Set("User", "ann") }

func back(r *http.Request) { r.Header.Set("Back", "1") }

// unwrapped is a writer of which only http.ResponseController finds out that it can be hijacked.
type unwrapped struct{ http.ResponseWriter }

func (w unwrapped) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// Outer middleware may have a writer that leaves all but writing to http.ResponseController.
func TestRefundUpgradeBehindUnwrap(t *testing.T) {
	for desc, wrap := range map[string]func(http.ResponseWriter) http.ResponseWriter{
		"Unwrap": func(w http.ResponseWriter) http.ResponseWriter { return unwrapped{w} },
		"Unwrap and Flush": func(w http.ResponseWriter) http.ResponseWriter {
			return struct {
				unwrapped
				http.Flusher
			}{unwrapped{w}, w.(http.Flusher)}
		},
	} {
		asked := make(chan int, 1)
		limit := nethttp.New(core.PerMinute(9), core.ByIP(), core.WithRefund(func(_ *http.Request, status int) bool {
			asked <- status
			return false
		}))
		var flushes, could bool
		h := limit(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			_, flushes = w.(http.Flusher)
			c, rw, err := http.NewResponseController(w).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			defer c.Close()
			io.Copy(io.Discard, rw)
		}))
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w = wrap(w)
			_, could = w.(http.Flusher)
			h.ServeHTTP(w, r)
		}))
		c, err := net.Dial("tcp", server.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		io.WriteString(c, "GET / HTTP/1.1\r\nHost: sash.example\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
		c.Close()
		if status := <-asked; status != http.StatusSwitchingProtocols || flushes != could {
			t.Errorf("%s: asked about %d, want 101; Flusher %t, want %t", desc, status, flushes, could)
		}
		server.Close()
	}
}

// stream is what a handler can take over.
type stream struct{}

// streamer is a writer as those of HTTP/3, of which WebTransport takes the stream of a CONNECT.
type streamer struct{ http.ResponseWriter }

func (streamer) Flush()              {}
func (streamer) HTTPStream() *stream { return new(stream) }

// Options leave a writer what only its server knows of where a request may need it. Elsewhere they see the status.
func TestWritersOfHTTP3(t *testing.T) {
	var asked []int
	refund := core.WithRefund(func(_ *http.Request, status int) bool {
		asked = append(asked, status)
		return status != http.StatusOK
	})
	for name, p := range map[string]core.Policy{
		"WithRefund": core.PerMinute(1), "InFlight": core.InFlight(1),
		"both": core.Limits{core.PerMinute(1), core.InFlight(1)},
	} {
		var opts []core.Option
		if asked = nil; name != "InFlight" {
			opts = append(opts, refund)
		}
		limit := nethttp.New(p, core.ByIP(), opts...)
		plain := limit(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusBadGateway)
		}))
		for range 3 {
			w := httptest.NewRecorder()
			plain.ServeHTTP(streamer{w}, httptest.NewRequest(http.MethodGet, "/", nil))
			if w.Code != http.StatusBadGateway {
				t.Errorf("%s: %d, want each request refunded", name, w.Code)
			}
		}
		if want := []int{502, 502, 502}; opts != nil && !slices.Equal(asked, want) {
			t.Errorf("%s: asked about %v, want %v", name, asked, want)
		}
		asked = nil
		ctx, end := context.WithCancel(t.Context())
		upgraded := limit(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusOK)
			w.(http.Flusher).Flush()
			w.(interface{ HTTPStream() *stream }).HTTPStream()
			end() // a server does so when the stream has ended
		}))
		r := httptest.NewRequestWithContext(ctx, http.MethodConnect, "/wt", nil)
		upgraded.ServeHTTP(streamer{httptest.NewRecorder()}, r)
		if want := []int{200}; opts != nil && !slices.Equal(asked, want) {
			t.Errorf("%s: asked about %v, want %v", name, asked, want)
		}
	}
}

// A CONNECT that net/http serves is watched as any other request.
func TestConnectOfNetHTTP(t *testing.T) {
	asked := make(chan int, 1)
	limit := nethttp.New(core.PerMinute(9), core.ByIP(), core.WithRefund(func(_ *http.Request, status int) bool {
		asked <- status
		return false
	}))
	server := httptest.NewUnstartedServer(limit(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusForbidden)
	})))
	server.EnableHTTP2 = true
	server.StartTLS()
	defer server.Close()
	http1 := server.Client().Transport.(*http.Transport).Clone()
	http1.ForceAttemptHTTP2, http1.TLSNextProto = false, map[string]func(string, *tls.Conn) http.RoundTripper{}
	http1.TLSClientConfig.NextProtos = nil
	for major, transport := range map[int]http.RoundTripper{1: http1, 2: server.Client().Transport} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodConnect, server.URL, nil)
		if err != nil {
			t.Fatal(err)
		}
		w, err := transport.RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		w.Body.Close()
		if status := <-asked; status != http.StatusForbidden || w.ProtoMajor != major {
			t.Errorf("HTTP/%d: asked about %d, want 403 over HTTP/%d", w.ProtoMajor, status, major)
		}
	}
}

// WithRefund's callback is called once, with the request and the status that the client gets.
func TestRefund(t *testing.T) {
	for _, c := range []struct {
		desc    string
		handler http.HandlerFunc
		status  int
		body    string
	}{
		{"nothing", func(http.ResponseWriter, *http.Request) {}, 200, ""},
		{"a body", func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "served") }, 200, "served"},
		{"a body that is copied", func(w http.ResponseWriter, _ *http.Request) {
			io.Copy(w, strings.NewReader("served"))
		}, 200, "served"},
		{"flushed", func(w http.ResponseWriter, _ *http.Request) { w.(http.Flusher).Flush() }, 200, ""},
		{"200", func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(200)
			io.WriteString(w, "served")
		}, 200, "served"},
		{"304", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(304) }, 304, ""},
		{"404", http.NotFound, 404, "404 page not found\n"},
		{"500", func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "down", 500) }, 500, "down\n"},
		{"the first status", func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(404)
			w.WriteHeader(500)
		}, 404, ""},
		{"a status too late", func(w http.ResponseWriter, _ *http.Request) {
			io.WriteString(w, "served")
			w.WriteHeader(500)
		}, 200, "served"},
		{"a status after a flush", func(w http.ResponseWriter, _ *http.Request) {
			w.(http.Flusher).Flush()
			w.WriteHeader(500)
		}, 200, ""},
		{"a status after a flush by the controller", func(w http.ResponseWriter, _ *http.Request) {
			http.NewResponseController(w).Flush()
			w.WriteHeader(500)
		}, 200, ""},
		{"an error before the first byte", func(w http.ResponseWriter, _ *http.Request) {
			if _, err := io.Copy(w, iotest.ErrReader(io.ErrUnexpectedEOF)); err != nil {
				http.Error(w, "down", 500)
			}
		}, 500, "down\n"},
		{"nothing copied", func(w http.ResponseWriter, _ *http.Request) {
			io.Copy(w, strings.NewReader(""))
			w.WriteHeader(404)
		}, 404, ""},
		{"an empty write", func(w http.ResponseWriter, _ *http.Request) {
			w.Write(nil)
			w.WriteHeader(404)
		}, 200, ""},
		{"early hints", func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(103)
			w.WriteHeader(404)
		}, 404, ""},
		{"early hints alone", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(103) }, 200, ""},
		{"http.ServeContent", func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Etag", `"v1"`)
			r.Header.Set("If-None-Match", `"v1"`)
			http.ServeContent(w, r, "file.txt", time.Time{}, strings.NewReader("served"))
		}, 304, ""},
	} {
		type protocol = func(*testing.T, http.Handler) func(*http.Request) *http.Response
		for name, serve := range map[string]protocol{"HTTP/1.1": coretest.HTTP1, "HTTP/2": coretest.HTTP2} {
			t.Run(c.desc+"/"+name, func(t *testing.T) {
				var asked []int
				l := newLimiter(t, core.PerMinute(9), core.WithCost(func(*http.Request) int { return 3 }),
					core.WithRefund(func(r *http.Request, status int) bool {
						asked = append(asked, status)
						return r.Header.Get("Back") != "" && r.Context().Err() == nil
					}))
				send := serve(t, nethttp.From(l)(c.handler))
				for i, change := range []func(*http.Request){back, func(*http.Request) {}} {
					asked = nil
					r := httptest.NewRequest(http.MethodGet, "/", nil)
					ann(r)
					change(r)
					response := send(r)
					body, _ := io.ReadAll(response.Body)
					if response.StatusCode != c.status || string(body) != c.body {
						t.Errorf("status %d, body %q; want %d, %q", response.StatusCode, body, c.status, c.body)
					}
					if !slices.Equal(asked, []int{c.status}) {
						t.Errorf("asked about %v, want %d once", asked, c.status)
					}
					if n := used(t, l); n != 3*i { // the first is given back, the second is not
						t.Errorf("%d units used, want %d", n, 3*i)
					}
				}
			})
		}
	}
}

// A panic counts as 500 and is passed on to the server, which cuts the connection.
func TestRefundPanic(t *testing.T) {
	for _, value := range []any{"boom", http.ErrAbortHandler} {
		var mu sync.Mutex
		var asked []int
		l := newLimiter(t, core.PerMinute(9), core.WithRefund(func(_ *http.Request, status int) bool {
			mu.Lock()
			defer mu.Unlock()
			asked = append(asked, status)
			return len(asked) == 1
		}))
		h := nethttp.From(l)(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(200)
			panic(value)
		}))
		var caught []any
		server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			defer func() {
				p := recover()
				mu.Lock()
				caught = append(caught, p)
				mu.Unlock()
				panic(p)
			}()
			h.ServeHTTP(w, r)
		}))
		server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
		server.Start()
		for i := range 2 {
			// A POST is not retried.
			r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL, nil)
			if err != nil {
				t.Fatal(err)
			}
			ann(r)
			if response, err := http.DefaultClient.Do(r); err == nil {
				response.Body.Close()
				t.Errorf("%v: status %d, want a connection that is cut", value, response.StatusCode)
			}
			if n := used(t, l); n != i {
				t.Errorf("%v: %d units used, want %d", value, n, i)
			}
		}
		server.Close() // which waits for the handlers
		if !slices.Equal(asked, []int{500, 500}) || !slices.Equal(caught, []any{value, value}) {
			t.Errorf("asked about %v, caught %v", asked, caught)
		}
	}
}

// A client that has gone gets its unit back, although the request's context is done.
func TestRefundClientGone(t *testing.T) {
	for protocol, two := range map[string]bool{"HTTP/1.1": false, "HTTP/2": true} {
		t.Run(protocol, func(t *testing.T) {
			begun, told := make(chan bool), make(chan core.Event, 9)
			l := newLimiter(t, core.PerMinute(9),
				core.WithRefund(func(r *http.Request, _ int) bool { return r.Context().Err() != nil }),
				core.WithObserver(func(ctx context.Context, e core.Event) {
					if e.Outcome == event.Refunded {
						e.Err = ctx.Err()
						told <- e
					}
				}))
			hang := func(_ http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/hang" {
					begun <- true
					<-r.Context().Done()
				}
			}
			server := httptest.NewUnstartedServer(nethttp.From(l)(http.HandlerFunc(hang)))
			if server.EnableHTTP2 = two; two {
				server.StartTLS()
			} else {
				// Over TLS the server would learn of the client's end before the client stops reading, so
				// the answer might come first.
				server.Start()
			}
			defer server.Close()
			send := func(ctx context.Context, path string) error {
				r, err := http.NewRequestWithContext(ctx, http.MethodGet, server.URL+path, nil)
				if err != nil {
					t.Fatal(err)
				}
				ann(r)
				response, err := server.Client().Do(r)
				if err != nil {
					return err
				}
				defer response.Body.Close()
				if two != (response.ProtoMajor == 2) {
					t.Errorf("protocol %s", response.Proto)
				}
				return nil
			}
			if err := send(t.Context(), "/"); err != nil { // a client that waits for the answer is charged
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			go func() {
				<-begun
				if n := used(t, l); n != 2 {
					t.Errorf("%d units used while the handler runs, want 2", n)
				}
				cancel()
			}()
			if err := send(ctx, "/hang"); !errors.Is(err, context.Canceled) {
				t.Errorf("the client got %v", err)
			}
			select {
			case e := <-told:
				if e.Err != nil || e.Key != "ann" || !e.Decision.Allowed {
					t.Errorf("observed %+v", e)
				}
			case <-time.After(maxWait):
				t.Fatal("nothing was given back")
			}
			if n := used(t, l); n != 1 {
				t.Errorf("%d units used, want 1", n)
			}
		})
	}
}

// The writer is wrapped only for requests whose status will be needed.
func TestRefundWrapsNoMoreThanItMust(t *testing.T) {
	refund := core.WithRefund(func(*http.Request, int) bool { return false })
	skip := core.WithSkip(func(*http.Request) bool { return true })
	for _, c := range []struct {
		desc    string
		opts    []core.Option
		wrapped bool
	}{
		{"without the option", nil, false},
		{"with it", []core.Option{refund}, true},
		{"skipped", []core.Option{refund, skip}, false},
		{"on an allow list", []core.Option{refund, core.WithAllowList(core.ByIP(), "192.0.2.0/24")}, false},
	} {
		w, layers := httptest.NewRecorder(), 0
		limit := nethttp.New(core.PerMinute(9), core.ByIP(), c.opts...)
		h := limit(http.HandlerFunc(func(inner http.ResponseWriter, _ *http.Request) {
			for inner != http.ResponseWriter(w) {
				inner = inner.(interface{ Unwrap() http.ResponseWriter }).Unwrap()
				layers++
			}
		}))
		h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
		if want := map[bool]int{true: 1}[c.wrapped]; layers != want {
			t.Errorf("%s: %d layers around the writer, want %d", c.desc, layers, want)
		}
	}
}

// A refund that fails is reported to the observer only, and the unit stays taken.
func TestRefundFails(t *testing.T) {
	errDown := errors.New("down")
	for _, c := range []struct {
		desc   string
		refund func(*coretest.FakeStore) bool
		is     func(error) bool
	}{
		{
			"a panic",
			func(*coretest.FakeStore) bool { panic("boom") },
			func(err error) bool { return errors.As(err, new(*adapter.PanicError)) },
		},
		{
			"a store that does not answer",
			func(s *coretest.FakeStore) bool { s.Fail(errDown); return true },
			func(err error) bool { return errors.As(err, new(*core.StoreError)) && errors.Is(err, errDown) },
		},
	} {
		var events []core.Event
		store := new(coretest.FakeStore)
		l := newLimiter(t, core.PerMinute(1),
			core.WithStore(store), core.WithFailure(core.FailClosed), core.WithTimeout(time.Minute),
			core.WithRefund(func(*http.Request, int) bool { return c.refund(store) }),
			core.WithObserver(func(_ context.Context, e core.Event) {
				events = append(events, e)
				if len(events) == 2 {
					panic("the observer, too")
				}
			}))
		h := nethttp.From(l)(ok)
		if w := get(h, ann); w.Code != 200 {
			t.Errorf("%s: status %d", c.desc, w.Code)
		}
		if len(events) != 2 || !c.is(events[1].Err) || events[1].Outcome != event.RefundFailed ||
			events[1].Key != "ann" {
			t.Errorf("%s: observed %+v", c.desc, events)
		}
		store.Fail(nil)
		if w := get(h, ann); w.Code != 429 {
			t.Errorf("%s, again: status %d", c.desc, w.Code)
		}
	}
}

// WithRefund is not called for a request that has taken nothing.
func TestRefundNothing(t *testing.T) {
	for desc, opts := range map[string][]core.Option{
		"denied":                  nil,
		"denied, and counted":     {core.WithCountDenied()},
		"banned":                  {core.WithBan(1, time.Minute, time.Minute)},
		"without a key":           nil,
		"skipped":                 {core.WithSkip(func(*http.Request) bool { return true })},
		"on a list":               {core.WithAllowList(core.ByIP(), "192.0.2.0/24")},
		"on a list of the denied": {core.WithDenyList(core.ByIP(), "192.0.2.0/24")},
	} {
		l := newLimiter(t, core.PerMinute(1), append(opts, core.WithRefund(func(*http.Request, int) bool {
			t.Errorf("%s: asked", desc)
			return true
		}))...)
		if _, err := l.Allow(t.Context(), "ann"); err != nil {
			t.Fatal(err)
		}
		h := nethttp.From(l)(ok)
		for range 3 {
			get(h, func(r *http.Request) {
				if desc != "without a key" {
					ann(r)
				}
			})
		}
		if n := used(t, l); n > 1 {
			t.Errorf("%s: %d units used", desc, n)
		}
	}
}

// Each of two limiters refunds its own unit, the inner one first.
func TestRefundTwoLimiters(t *testing.T) {
	var asked []string
	limiter := func(name string) *core.Limiter {
		refund := core.WithRefund(func(r *http.Request, status int) bool {
			asked = append(asked, name)
			return status == 404 && r.Header.Get("Back") == name
		})
		return newLimiter(t, core.PerMinute(9), core.WithName(name), refund)
	}
	inner, outer := limiter("inner"), limiter("outer")
	h := nethttp.From(outer)(nethttp.From(inner)(http.NotFoundHandler()))
	for _, c := range []struct {
		back         string
		inner, outer int
	}{{"inner", 0, 1}, {"outer", 1, 1}, {"none", 2, 2}} {
		asked = nil
		get(h, ann, func(r *http.Request) { r.Header.Set("Back", c.back) })
		if !slices.Equal(asked, []string{"inner", "outer"}) || used(t, inner) != c.inner || used(t, outer) != c.outer {
			t.Errorf("%s: asked %v; %d and %d units used, want %d and %d",
				c.back, asked, used(t, inner), used(t, outer), c.inner, c.outer)
		}
	}
}
