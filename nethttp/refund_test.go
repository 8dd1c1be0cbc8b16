package nethttp_test

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/adapter"
	"github.com/sashlimit/sash/core/coretest"
	"github.com/sashlimit/sash/core/event"
	"github.com/sashlimit/sash/nethttp"
)

var byUser = core.ByHeader("User", core.Unverified)

// ann asks as somebody; others go by another name.
func ann(r *http.Request) { r.Header.Set("User", "ann") }

// asking returns a limiter of nine a minute, and the statuses that it asks WithRefund about.
func asking() (limit func(http.Handler) http.Handler, asked chan int) {
	asked = make(chan int, 1)
	return nethttp.New(core.PerMinute(9), core.ByIP(), core.WithRefund(func(_ *http.Request, status int) bool {
		asked <- status
		return false
	})), asked
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
		r.ProtoMajor = 3
		upgraded.ServeHTTP(streamer{httptest.NewRecorder()}, r)
		if want := []int{200}; opts != nil && !slices.Equal(asked, want) {
			t.Errorf("%s: asked about %v, want %v", name, asked, want)
		}
	}
}

// A CONNECT that net/http serves is watched as any other request.
func TestConnectOfNetHTTP(t *testing.T) {
	limit, asked := asking()
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

// hiding is a writer of which only http.ResponseController finds out that it can be hijacked.
type hiding struct{ http.ResponseWriter }

func (w hiding) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func TestUpgradeBehindAWriterThatHidesIt(t *testing.T) {
	limit, asked := asking()
	limited := limit(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		c, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer c.Close()
		io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n")
	}))
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		limited.ServeHTTP(hiding{w}, r)
	}))
	defer server.Close()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header = http.Header{"Connection": {"Upgrade"}, "Upgrade": {"x"}}
	w, err := server.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	w.Body.Close()
	if status := <-asked; status != 101 || w.StatusCode != 101 {
		t.Errorf("status %d, asked about %d; want 101", w.StatusCode, status)
	}
}

// broken is a writer whose client has gone.
type broken struct{ *httptest.ResponseRecorder }

var errBroken = errors.New("broken pipe")

func (broken) FlushError() error { return errBroken }

// A handler that streams until a flush fails would otherwise never end.
func TestFlushFailsBehindRefund(t *testing.T) {
	limit, asked := asking()
	h := limit(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if err := http.NewResponseController(w).Flush(); !errors.Is(err, errBroken) {
			t.Errorf("a flush returns %v, want %v", err, errBroken)
		}
	}))
	h.ServeHTTP(broken{httptest.NewRecorder()}, httptest.NewRequest(http.MethodGet, "/", nil))
	if status := <-asked; status != http.StatusOK {
		t.Errorf("asked about %d, want 200", status)
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
		l := newLimiter(t, core.PerMinute(1), byUser,
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
		l := newLimiter(t, core.PerMinute(1), byUser, append(opts, core.WithRefund(func(*http.Request, int) bool {
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
		if n := used(t, l, "ann"); n > 1 {
			t.Errorf("%s: %d units used", desc, n)
		}
	}
}
