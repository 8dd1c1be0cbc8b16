package coretest

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/adapter"
)

// maxWait bounds waits that end at once unless an adapter is broken.
const maxWait = 30 * time.Second

type mount = func(next http.Handler, limiters ...*core.Limiter) http.Handler

// responses checks that WithRefund is called with the status that was sent, and that no permit is left behind.
func responses(t *testing.T, m mount) {
	for protocol, two := range map[string]bool{"HTTP1": false, "HTTP2": true} {
		t.Run(protocol, func(t *testing.T) {
			t.Run("HangUp", func(t *testing.T) { hangUp(t, m, two) })
			t.Run("Leaving", func(t *testing.T) { leaving(t, m, two) })
			t.Run("Endings", func(t *testing.T) { endings(t, m, two) })
			t.Run("Permits", func(t *testing.T) { permits(t, m, two) })
		})
	}
	t.Run("HalfClosed", func(t *testing.T) { halfClosed(t, m) })
	t.Run("Upgrade", func(t *testing.T) { upgrade(t, m) })
	t.Run("TwoLimiters", func(t *testing.T) { refundsOfTwo(t, m) })
}

// refundServer serves a handler behind a limiter of three an hour and one at a time, which refunds a request if f says
// so of its status.
type refundServer struct {
	limiter *core.Limiter
	server  *httptest.Server
	asked   chan int      // the statuses that f was called with
	ended   chan struct{} // receives when a request has been served and, if f says so, refunded
}

// newRefundServer has other middleware outside the limiter.
func newRefundServer(
	t *testing.T, m mount, two bool, f func(status int) bool, h http.Handler, outside func(http.Handler) http.Handler,
) *refundServer {
	t.Helper()
	e := &refundServer{asked: make(chan int, 100), ended: make(chan struct{}, 100)}
	l, err := core.New(core.Limits{core.PerHour(3), core.InFlight(1)}, core.ByIP(),
		core.WithRefund(func(_ context.Context, status int) bool {
			e.asked <- status
			return f(status)
		}))
	if err != nil {
		t.Fatal(err)
	}
	e.limiter = l
	limited := m(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, permits := e.used(t); permits != 1 {
			t.Errorf("%d permits are held while the handler runs", permits)
		}
		h.ServeHTTP(w, r)
	}), l)
	e.server = httptest.NewUnstartedServer(outside(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() { e.ended <- struct{}{} }()
		limited.ServeHTTP(w, r)
	})))
	e.server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	if e.server.EnableHTTP2 = two; two {
		e.server.StartTLS()
	} else {
		e.server.Start()
	}
	t.Cleanup(e.server.Close)
	return e
}

func always(int) bool { return true }

func untouched(h http.Handler) http.Handler { return h }

func (e *refundServer) used(t *testing.T) (units, permits int) {
	t.Helper()
	d, err := e.limiter.Peek(context.WithoutCancel(t.Context()), "127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	return d.Limits()[0].Used, d.Limits()[1].Used
}

// do sends a request and calls f with the response, or with nil if ctx ended before it came. Then it waits until
// the handler has returned, and returns the status that WithRefund was called with, or 0.
func (e *refundServer) do(ctx context.Context, t *testing.T, f func(*http.Response)) (asked int) {
	t.Helper()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, e.server.URL, http.NoBody) // a POST is not retried
	if err != nil {
		t.Fatal(err)
	}
	response, err := e.server.Client().Do(r)
	if f(response); err == nil {
		response.Body.Close()
	}
	e.wait(t)
	select {
	case asked = <-e.asked:
	default:
	}
	return asked
}

func (e *refundServer) wait(t *testing.T) {
	t.Helper()
	select {
	case <-e.ended:
	case <-time.After(maxWait):
		t.Fatal("the handler has not ended")
	}
	if _, permits := e.used(t); permits != 0 {
		t.Fatalf("%d permits are left behind", permits)
	}
}

// proxy passes requests on to a server that h serves.
func proxy(t *testing.T, h http.HandlerFunc) *httputil.ReverseProxy {
	t.Helper()
	upstream := httptest.NewServer(h)
	t.Cleanup(upstream.Close)
	target, err := url.Parse(upstream.URL)
	if err != nil {
		t.Fatal(err)
	}
	return &httputil.ReverseProxy{
		Rewrite:  func(r *httputil.ProxyRequest) { r.SetURL(target) },
		ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelError),
	}
}

// hangUp has 20 clients that hang up in order to get a refund: three are served, and none is refunded.
func hangUp(t *testing.T, m mount, two bool) {
	faults := func(status int) bool { return status >= 500 }
	for _, c := range []struct {
		desc   string
		before bool // the client leaves before the response
		asked  int
		serve  http.HandlerFunc // of the server behind the proxy
	}{
		{"in mid-body", false, 200, func(w http.ResponseWriter, r *http.Request) {
			w.Write(make([]byte, 64<<10))
			http.NewResponseController(w).Flush()
			<-r.Context().Done()
		}},
		{"after the header", false, 200, func(w http.ResponseWriter, r *http.Request) {
			http.NewResponseController(w).Flush()
			<-r.Context().Done()
		}},
		{"before the response", true, adapter.StatusClientClosedRequest, func(_ http.ResponseWriter, r *http.Request) {
			<-r.Context().Done()
		}},
	} {
		t.Run(c.desc, func(t *testing.T) {
			arrived := make(chan bool, 1)
			e := newRefundServer(t, m, two, faults, proxy(t, func(w http.ResponseWriter, r *http.Request) {
				arrived <- true
				c.serve(w, r)
			}), untouched)
			served := 0
			for range 20 {
				ctx, cancel := context.WithCancel(t.Context())
				if c.before {
					stop := make(chan bool)
					go func() {
						defer cancel()
						select {
						case <-arrived:
						case <-stop:
						}
					}()
					defer close(stop)
				}
				denied := false
				asked := e.do(ctx, t, func(r *http.Response) {
					if denied = r != nil && r.StatusCode == http.StatusTooManyRequests; !denied && r != nil {
						<-arrived
						if r.StatusCode != http.StatusOK {
							t.Errorf("status %d", r.StatusCode)
						}
					}
					cancel()
				})
				if denied {
					continue
				}
				if served++; asked != c.asked {
					t.Errorf("asked about %d, want %d", asked, c.asked)
				}
			}
			if served != 3 {
				t.Errorf("%d of 20 were served, want 3", served)
			}
		})
	}
}

// leaving checks the status that WithRefund gets if the client leaves while the handler runs.
func leaving(t *testing.T, m mount, two bool) {
	gone := adapter.StatusClientClosedRequest
	nothing := func(http.ResponseWriter, *http.Request) {}
	body := func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, text) }
	abort := func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }
	ended := make(chan struct{})
	defer close(ended)
	// A handler that ended with its context would sometimes win the race: http.TimeoutHandler takes whichever is first.
	waits := http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-ended })
	for _, c := range []struct {
		desc          string
		before, after http.HandlerFunc // the client leaves
		asked         int
	}{
		{"nothing", nil, nothing, gone},
		{"500", nil, func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "down", 500) }, gone},
		{"502, a header alone", nil, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(502) }, gone},
		{"a panic", nil, func(http.ResponseWriter, *http.Request) { panic("boom") }, gone},
		{"http.ErrAbortHandler", nil, abort, gone},
		{"200 all the same", nil, body, 200},
		{"404 all the same", nil, http.NotFound, 404},
		{"within http.TimeoutHandler", nil, http.TimeoutHandler(waits, time.Hour, "").ServeHTTP, gone},
		{"after 200 has been read", body, nothing, 200},
		{"after 404 has been read", http.NotFound, nothing, 404},
		{"after 200 has been read, and a panic", body, abort, 200},
		{"after a header has been read", nothing, body, 200},
	} {
		t.Run(c.desc, func(t *testing.T) {
			arrived := make(chan bool, 1)
			e := newRefundServer(t, m, two, always, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if c.before != nil {
					c.before(w, r)
					http.NewResponseController(w).Flush()
				}
				arrived <- true
				<-r.Context().Done()
				c.after(w, r)
			}), untouched)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			if c.before == nil {
				go func() {
					<-arrived
					cancel()
				}()
			}
			if asked := e.do(ctx, t, func(*http.Response) { cancel() }); asked != c.asked {
				t.Errorf("asked about %d, want %d", asked, c.asked)
			}
			if units, _ := e.used(t); units != 0 {
				t.Errorf("%d units used, want it given back although its context is done", units)
			}
		})
	}
}

// endings checks the status that WithRefund gets if the client waits for the response.
func endings(t *testing.T, m mount, two bool) {
	const either = -1 // any status, if the client's and WithRefund's are equal
	timeout := func(d time.Duration, h http.HandlerFunc) http.HandlerFunc {
		return http.TimeoutHandler(h, d, "").ServeHTTP
	}
	panics := func(http.ResponseWriter, *http.Request) { panic("boom") }
	ended := make(chan struct{})
	defer close(ended)
	// A handler that ended with its context would sometimes win the race: http.TimeoutHandler takes whichever is first.
	waits := func(http.ResponseWriter, *http.Request) { <-ended }
	caught := func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			recover()
			w.WriteHeader(503)
		}()
		panics(w, r)
	}
	for _, c := range []struct {
		desc    string
		handler http.HandlerFunc
		status  int // that the client gets, or 0 where the connection is cut
		asked   int
	}{
		{"nothing", func(http.ResponseWriter, *http.Request) {}, 200, 200},
		{"a body that is copied", func(w http.ResponseWriter, _ *http.Request) {
			io.Copy(w, strings.NewReader(text))
		}, 200, 200},
		{"flushed", func(w http.ResponseWriter, _ *http.Request) { w.(http.Flusher).Flush() }, 200, 200},
		{"304", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(304) }, 304, 304},
		{"404", http.NotFound, 404, 404},
		{"a status too late", func(w http.ResponseWriter, _ *http.Request) {
			io.WriteString(w, text)
			w.WriteHeader(500)
		}, 200, 200},
		{"an error before the first byte", func(w http.ResponseWriter, _ *http.Request) {
			if _, err := io.Copy(w, iotest.ErrReader(io.ErrUnexpectedEOF)); err != nil {
				http.Error(w, "down", 500)
			}
		}, 500, 500},
		{"nothing copied", func(w http.ResponseWriter, _ *http.Request) {
			io.Copy(w, strings.NewReader(""))
			w.WriteHeader(404)
		}, 404, 404},
		// Frameworks differ in which of several statuses they send.
		{"two statuses", func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(404)
			w.WriteHeader(500)
		}, either, either},
		{"an empty write", func(w http.ResponseWriter, _ *http.Request) {
			w.Write(nil)
			w.WriteHeader(404)
		}, either, either},
		{"early hints alone", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(103) }, either, either},
		{"a panic that is caught behind", caught, 503, 503},
		{"a panic", panics, 0, 500},
		{"http.ErrAbortHandler", func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, 0, 500},
		{"a panic after a body", func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(201)
			w.Write(make([]byte, 64<<10))
			panic("boom")
		}, 201, 201},
		{"http.ErrAbortHandler after a flush", func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(200)
			http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		}, 200, 200},
		// echo sends only the first status.
		{"103, then 404", func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(103)
			w.WriteHeader(404)
		}, either, either},
		{"a deadline of the server's", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(503) }, 503, 503},
		{"http.TimeoutHandler", timeout(1, waits), 503, 503},
		{"a panic within http.TimeoutHandler", timeout(time.Hour, panics), 0, 500},
		{"events", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			for range 3 {
				io.WriteString(w, "data: 1\n\n")
				http.NewResponseController(w).Flush()
			}
			w.WriteHeader(500) // too late
		}, 200, 200},
	} {
		t.Run(c.desc, func(t *testing.T) {
			outside := untouched
			if c.desc == "a deadline of the server's" {
				outside = func(h http.Handler) http.Handler {
					return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
						ctx, cancel := context.WithDeadline(r.Context(), time.Now())
						defer cancel()
						h.ServeHTTP(w, r.WithContext(ctx))
					})
				}
			}
			e := newRefundServer(t, m, two, always, c.handler, outside)
			status := 0
			asked := e.do(t.Context(), t, func(r *http.Response) {
				if r != nil {
					status = r.StatusCode
					io.Copy(io.Discard, r.Body)
				}
			})
			if c.status == either {
				c.status, c.asked = status, status
			}
			if status != c.status || asked != c.asked {
				t.Errorf("status %d, asked about %d; want %d, %d", status, asked, c.status, c.asked)
			}
		})
	}
}

// permits checks that handlers which end in odd ways, many times, leave no permit behind.
func permits(t *testing.T, m mount, two bool) {
	panics := func(http.ResponseWriter, *http.Request) { panic("boom") }
	hijacks := func(w http.ResponseWriter, _ *http.Request) {
		if c, _, err := http.NewResponseController(w).Hijack(); err == nil {
			c.Close()
		}
	}
	timeout := func(d time.Duration) func(http.Handler) http.Handler {
		return func(h http.Handler) http.Handler { return http.TimeoutHandler(h, d, "") }
	}
	for _, c := range []struct {
		desc    string
		http1   bool
		handler http.HandlerFunc
		outside func(http.Handler) http.Handler // of the limiter
	}{
		{"a panic", false, panics, untouched},
		{"http.ErrAbortHandler", false, func(http.ResponseWriter, *http.Request) {
			panic(http.ErrAbortHandler)
		}, untouched},
		{"Goexit", true, func(http.ResponseWriter, *http.Request) { runtime.Goexit() }, untouched},
		{"a hijack", true, hijacks, untouched},
		{"a hijack and a panic", true, func(w http.ResponseWriter, r *http.Request) {
			hijacks(w, r)
			panic("boom")
		}, untouched},
		{"http.TimeoutHandler", false, func(_ http.ResponseWriter, r *http.Request) {
			<-r.Context().Done()
		}, timeout(time.Nanosecond)},
		{"a panic within http.TimeoutHandler", false, panics, timeout(time.Hour)},
	} {
		t.Run(c.desc, func(t *testing.T) {
			if c.http1 && two {
				t.Skip("HTTP/2 has no such ending")
			}
			e := newRefundServer(t, m, two, always, c.handler, c.outside)
			for range 200 {
				e.do(t.Context(), t, func(*http.Response) {})
			}
		})
	}
}

// halfClosed has clients that close the sending side, which net/http cannot tell from leaving, and read the
// response. A client must not choose its status that way: neither wrong passwords nor served requests are refunded.
func halfClosed(t *testing.T, m mount) {
	for _, c := range []struct {
		desc   string
		back   func(status int) bool
		status int
	}{
		{"all but wrong passwords", func(status int) bool { return status != 401 }, http.StatusUnauthorized},
		{"all that fails", func(status int) bool { return status >= 400 }, http.StatusOK},
	} {
		e := newRefundServer(t, m, false, c.back, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			<-r.Context().Done()
			w.WriteHeader(c.status)
			io.WriteString(w, text)
		}), untouched)
		var got []int
		for range 20 {
			connection := e.dial(t)
			io.WriteString(connection, "GET / HTTP/1.1\r\nHost: sash.example\r\n\r\n")
			connection.CloseWrite()
			r, err := http.ReadResponse(bufio.NewReader(connection), nil)
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, r.StatusCode)
			e.wait(t)
		}
		want := append(slices.Repeat([]int{c.status}, 3), slices.Repeat([]int{429}, 17)...)
		if !slices.Equal(got, want) {
			t.Errorf("%s: statuses %v, want %v", c.desc, got, want)
		}
	}
}

// refundsOfTwo checks that each of two limiters refunds its own unit, the inner one first.
func refundsOfTwo(t *testing.T, m mount) {
	var asked []string
	back := ""
	limit := func(name string) *core.Limiter {
		return limiterFor(t, core.NewMemoryStore(), core.PerMinute(9), core.ByIP(), core.WithName(name),
			core.WithRefund(func(_ context.Context, status int) bool {
				asked = append(asked, fmt.Sprint(name, status))
				return back == name
			}))
	}
	outer, inner := limit("outer"), limit("inner")
	h := m(http.NotFoundHandler(), outer, inner)
	for _, c := range []struct {
		back string
		used [2]int
	}{{"inner", [2]int{1, 0}}, {"outer", [2]int{1, 1}}, {"none", [2]int{2, 2}}} {
		asked, back = nil, c.back
		h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", nil))
		var used [2]int
		for i, l := range []*core.Limiter{outer, inner} {
			d, err := l.Peek(t.Context(), "192.0.2.1")
			if used[i] = d.Used; err != nil {
				t.Error(err)
			}
		}
		if !slices.Equal(asked, []string{"inner404", "outer404"}) || used != c.used {
			t.Errorf("back to %s: asked %v, used %v, want %v", c.back, asked, used, c.used)
		}
	}
}

func (e *refundServer) dial(t *testing.T) *net.TCPConn {
	t.Helper()
	connection, err := net.Dial("tcp", e.server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { connection.Close() })
	connection.SetDeadline(time.Now().Add(maxWait))
	return connection.(*net.TCPConn)
}

// upgrade has handlers, and a proxy, that hijack the connection.
func upgrade(t *testing.T, m mount) {
	const switching = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n"
	speak := func(connection net.Conn, in io.Reader, err error) {
		if err != nil {
			t.Error(err)
			return
		}
		defer connection.Close()
		io.WriteString(connection, switching)
		io.Copy(connection, in)
	}
	for desc, h := range map[string]http.Handler{
		"http.Hijacker": http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			h, ok := w.(http.Hijacker)
			if !ok {
				t.Error("the writer is no http.Hijacker")
				return
			}
			connection, in, err := h.Hijack()
			speak(connection, in, err)
		}),
		"http.ResponseController": http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			connection, in, err := http.NewResponseController(w).Hijack()
			speak(connection, in, err)
		}),
		"httputil.ReverseProxy": proxy(t, func(w http.ResponseWriter, _ *http.Request) {
			connection, in, err := http.NewResponseController(w).Hijack()
			speak(connection, in, err)
		}),
		"a panic": http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			connection, in, err := http.NewResponseController(w).Hijack()
			speak(connection, in, err)
			panic("boom")
		}),
	} {
		e := newRefundServer(t, m, false, always, h, untouched)
		connection := e.dial(t)
		io.WriteString(connection,
			"GET / HTTP/1.1\r\nHost: sash.example\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
		in := bufio.NewReader(connection)
		r, err := http.ReadResponse(in, nil)
		if err != nil {
			t.Fatalf("%s: %v", desc, err)
		}
		io.WriteString(connection, "ping\n")
		word, err := in.ReadString('\n')
		connection.CloseWrite()
		_, end := in.ReadByte()
		if r.StatusCode != http.StatusSwitchingProtocols || word != "ping\n" || err != nil || !errors.Is(end, io.EOF) {
			t.Errorf("%s: status %d, %q, %v, then %v", desc, r.StatusCode, word, err, end)
		}
		connection.Close()
		e.wait(t)
		if asked := <-e.asked; asked != http.StatusSwitchingProtocols {
			t.Errorf("%s: asked about %d, want 101", desc, asked)
		}
	}
}
