package nethttp_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/nethttp"
)

// The third request of an hour would have to wait for longer than the client's timeout, and fails at once.
func ExampleTransport() {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		io.WriteString(w, "Hello!")
	}))
	defer server.Close()

	limiter, err := core.New(core.PerHour(2), core.Global())
	if err != nil {
		fmt.Println(err)
		return
	}
	client := &http.Client{Transport: &nethttp.Transport{Limiter: limiter}, Timeout: time.Minute}
	for range 3 {
		response, err := client.Get(server.URL)
		if err != nil {
			fmt.Println("not sent:", errors.Is(err, context.DeadlineExceeded))
			continue
		}
		response.Body.Close()
		fmt.Println(response.Status)
	}
	// Output:
	// 200 OK
	// 200 OK
	// not sent: true
}

// pipes is a network within the process, and so within a bubble.
type pipes struct {
	conns  chan net.Conn
	closed chan struct{}
	dialed atomic.Int64
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error {
	close(p.closed)
	return nil
}

func (*pipes) Addr() net.Addr { return &net.UnixAddr{} }

func (p *pipes) dial(context.Context, string, string) (net.Conn, error) {
	p.dialed.Add(1)
	client, server := net.Pipe()
	select {
	case p.conns <- server:
		return client, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

// remote serves h to all hosts, and gives the transport that leads there.
func remote(t *testing.T, h http.HandlerFunc) (base *http.Transport, network *pipes) {
	t.Helper()
	network = &pipes{conns: make(chan net.Conn), closed: make(chan struct{})}
	server := &http.Server{Handler: h} //nolint:gosec // its clients are tests
	go server.Serve(network)
	base = &http.Transport{DialContext: network.dial}
	t.Cleanup(func() {
		base.CloseIdleConnections()
		server.Close()
	})
	return base, network
}

// body is what a request sends, and tells whether it was closed.
type body struct {
	io.Reader
	closed atomic.Bool
}

func (b *body) Close() error {
	b.closed.Store(true)
	return nil
}

// request makes one that has a body which can be had again only if replays.
func request(t *testing.T, method, url, text string, replays bool) (*http.Request, *body) {
	t.Helper()
	b := &body{Reader: strings.NewReader(text)}
	r, err := http.NewRequestWithContext(t.Context(), method, url, b)
	if err != nil {
		t.Fatal(err)
	}
	if replays {
		r.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(text)), nil }
	}
	return r, b
}

func read(t *testing.T, r *http.Response) string {
	t.Helper()
	defer r.Body.Close()
	b, err := io.ReadAll(r.Body)
	if err != nil {
		t.Error(err)
	}
	return string(b)
}

func TestTransportKey(t *testing.T) {
	base := func(*http.Request) (*http.Response, error) { return httptest.NewRecorder().Result(), nil }
	l := newLimiter(t, core.PerHour(5), core.ByText())
	tenant := func(r *http.Request) string { return r.Header.Get("Tenant") }
	tr := &nethttp.Transport{Limiter: l, Base: tripper(base), Key: tenant}
	r, b := request(t, "POST", "http://example.com/", "x", true)
	r.Header.Set("Tenant", "ann")
	if _, err := tr.RoundTrip(r); err != nil || used(t, l, "ann") != 1 || used(t, l, "example.com") != 0 {
		t.Errorf("%v, %d units used by ann", err, used(t, l, "ann"))
	}
	b.closed.Store(false)
	r.Header.Del("Tenant")
	if _, err := tr.RoundTrip(r); !errors.Is(err, core.ErrNoKey) || !b.closed.Load() {
		t.Errorf("no key: %v, body closed %v", err, b.closed.Load())
	}
}

type tripper func(*http.Request) (*http.Response, error)

func (f tripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func TestTransportWithoutLimiter(t *testing.T) {
	for _, l := range []*core.Limiter{nil, {}} {
		r, b := request(t, "POST", "http://example.com/", "x", true)
		var mistake *core.ConfigError
		_, err := (&nethttp.Transport{Limiter: l}).RoundTrip(r)
		if !errors.As(err, &mistake) || !strings.Contains(err.Error(), "core.New") || !b.closed.Load() {
			t.Errorf("%v, body closed %v", err, b.closed.Load())
		}
	}
}

func TestTransportRetryAfter(t *testing.T) {
	const asIs, atOnce = -1, -2                          // at once, but for the floor
	begin := time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC) // of every bubble
	date := func(d time.Duration, layout string) string { return begin.Add(d).Format(layout) }
	for _, c := range []struct {
		status     int
		retryAfter string
		date       string        // the server's clock, unless it is right
		resent     time.Duration // or asIs, or atOnce
		paused     time.Duration
	}{
		{429, "3", "", 3 * time.Second, 3 * time.Second},
		{503, "120", "", 2 * time.Minute, 2 * time.Minute},
		{429, "0", "", atOnce, atOnce},
		{429, "007", "", 7 * time.Second, 7 * time.Second},
		{429, "3600", "", time.Hour, time.Hour},
		{429, "3601", "", asIs, time.Hour},
		{429, "99999999999999999999999", "", asIs, time.Hour},
		{429, date(5*time.Second, http.TimeFormat), "", 5 * time.Second, 5 * time.Second},
		{503, date(5*time.Second, "Monday, 02-Jan-06 15:04:05 GMT"), "", 5 * time.Second, 5 * time.Second},
		{429, date(5*time.Second, http.TimeFormat), "none", 5 * time.Second, 5 * time.Second},
		{429, date(-5*time.Second, http.TimeFormat), "", atOnce, atOnce},
		{429, date(-5*time.Second, http.TimeFormat), "none", atOnce, atOnce},
		{429, date(1005*time.Second, http.TimeFormat), date(1000*time.Second, http.TimeFormat),
			5 * time.Second, 5 * time.Second},
		{429, date(5*time.Second, http.TimeFormat), "garbage", 5 * time.Second, 5 * time.Second},
		{429, date(2*time.Hour, http.TimeFormat), "", asIs, time.Hour},
		{429, "Fri, 31 Dec 9999 23:59:59 GMT", "", asIs, time.Hour},
		{429, "", "", asIs, 0},
		{429, "soon", "", asIs, 0},
		{429, "-3", "", asIs, 0},
		{429, "+3", "", asIs, 0},
		{429, "0x10", "", asIs, 0},
		{429, "٣", "", asIs, 0},
		{429, "2000-01-01T00:00:05Z", "", asIs, 0},
		{200, "3", "", asIs, 0},
		{500, "3", "", asIs, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			who := fmt.Sprintf("%d, Retry-After: %q, Date: %q", c.status, c.retryAfter, c.date)
			served := 0
			base, _ := remote(t, func(w http.ResponseWriter, _ *http.Request) {
				if served++; served > 1 {
					io.WriteString(w, "welcome")
					return
				}
				switch c.date {
				case "":
				case "none":
					w.Header()["Date"] = nil
				default:
					w.Header().Set("Date", c.date)
				}
				w.Header().Set("Retry-After", c.retryAfter)
				w.WriteHeader(c.status)
				io.WriteString(w, "not now")
			})
			tr := &nethttp.Transport{Limiter: newLimiter(t, core.PerSecond(100), core.ByText()), Base: base}
			start := time.Now()
			passed := func(want time.Duration) bool {
				is := time.Since(start)
				return is == want || want == atOnce && is >= 100*time.Millisecond && is < 150*time.Millisecond
			}
			get := func() (*http.Response, string) {
				r, _ := http.NewRequestWithContext(t.Context(), "GET", "http://example.com/", nil)
				response, err := tr.RoundTrip(r)
				if err != nil {
					t.Fatalf("%s: %v", who, err)
				}
				return response, read(t, response)
			}
			response, text := get()
			if c.resent == asIs {
				if response.StatusCode != c.status || text != "not now" || served != 1 || !time.Now().Equal(start) {
					t.Errorf("%s: status %d, %q after %v, served %d; want the response unchanged",
						who, response.StatusCode, text, time.Since(start), served)
				}
			} else if response.StatusCode != 200 || text != "welcome" || served != 2 || !passed(c.resent) {
				t.Errorf("%s: status %d, %q after %v, served %d; want it sent again after %v",
					who, response.StatusCode, text, time.Since(start), served, c.resent)
			}
			if get(); !passed(c.paused) {
				t.Errorf("%s: the next is sent after %v, want %v", who, time.Since(start), c.paused)
			}
		})
	}
}

// A server that says "now", or a time that is over, does not get four requests within a millisecond. Many clients do
// not come back together, and who has no time for the wait gets the response at once. There is no pause to be stored,
// and no warning that it was not.
func TestTransportFloor(t *testing.T) {
	var lines strings.Builder
	defer slog.SetDefault(slog.Default())
	slog.SetDefault(slog.New(slog.NewTextHandler(&lines, nil)))
	for _, retryAfter := range []string{"0", "Sat, 02 Jan 1999 15:04:05 GMT"} {
		synctest.Test(t, func(t *testing.T) {
			var mu sync.Mutex
			var sent []time.Duration
			start := time.Now()
			tr := &nethttp.Transport{
				Limiter: newLimiter(t, core.PerSecond(10_000), core.ByText(), core.WithOverrides()),
				Base: tripper(func(*http.Request) (*http.Response, error) {
					mu.Lock()
					defer mu.Unlock()
					sent = append(sent, time.Since(start))
					return refusal(retryAfter, http.NoBody), nil
				}),
			}
			get := func(ctx context.Context) {
				r := httptest.NewRequestWithContext(ctx, http.MethodGet, "http://example.com/", http.NoBody)
				if r, err := tr.RoundTrip(r); err != nil || r.StatusCode != http.StatusTooManyRequests {
					t.Errorf("%v, %v", r, err)
				}
			}
			get(t.Context())
			for i := range 3 {
				least := time.Duration(100<<i) * time.Millisecond
				if wait := sent[i+1] - sent[i]; wait < least || wait > least*3/2 {
					t.Errorf("sent again after %v, want %v and at most half of it more", wait, least)
				}
			}
			sent, start = nil, time.Now()
			var all sync.WaitGroup
			for range 100 {
				all.Go(func() { get(t.Context()) })
			}
			all.Wait()
			slices.Sort(sent)
			if again := slices.Compact(sent[100:200]); len(again) < 50 {
				t.Errorf("100 clients come back at %d instants, want them apart", len(again))
			}
			sent, start = nil, time.Now()
			ctx, cancel := context.WithTimeout(t.Context(), 99*time.Millisecond)
			defer cancel()
			if get(ctx); len(sent) != 1 || !time.Now().Equal(start) {
				t.Errorf("sent %d times within %v, want the response at once", len(sent), time.Since(start))
			}
			ctx, cancel = context.WithCancel(t.Context())
			time.AfterFunc(20*time.Millisecond, cancel)
			r := httptest.NewRequestWithContext(ctx, http.MethodGet, "http://example.com/", http.NoBody)
			_, err := tr.RoundTrip(r)
			if !errors.Is(err, context.Canceled) || time.Since(start) != 20*time.Millisecond {
				t.Errorf("after %v: %v", time.Since(start), err)
			}
		})
	}
	if lines.Len() > 0 {
		t.Errorf("logged %s", &lines)
	}
}

func TestTransportSendsAgain(t *testing.T) {
	for _, c := range []struct {
		method string
		status int
		replay bool
		change func(*http.Request)
		sent   int
	}{
		{method: "POST", status: 429, replay: true, sent: 2},
		{method: "POST", status: 429, sent: 1},
		{method: "POST", status: 503, replay: true, sent: 1},
		{method: "PATCH", status: 503, replay: true, sent: 1},
		{method: "POST", status: 503, replay: true, sent: 2, change: func(r *http.Request) {
			r.Header.Set("Idempotency-Key", "1")
		}},
		{method: "PUT", status: 503, replay: true, sent: 2},
		{method: "PUT", status: 503, sent: 1},
		{method: "DELETE", status: 503, replay: true, sent: 2},
		{method: "POST", status: 429, sent: 2, change: func(r *http.Request) { r.Body = nil }},
		{method: "POST", status: 429, sent: 2, change: func(r *http.Request) { r.Body = http.NoBody }},
		{method: "POST", status: 429, sent: 1, change: func(r *http.Request) {
			r.GetBody = func() (io.ReadCloser, error) { return nil, errors.New("gone") }
		}},
	} {
		synctest.Test(t, func(t *testing.T) {
			var got []string
			base, network := remote(t, func(w http.ResponseWriter, r *http.Request) {
				b, _ := io.ReadAll(r.Body)
				got = append(got, r.Method+" "+string(b))
				if len(got) == 1 {
					w.Header().Set("Retry-After", "5")
					w.WriteHeader(c.status)
					io.WriteString(w, strings.Repeat("not now ", 4000)) // 32 KB
				}
			})
			l := newLimiter(t, core.PerHour(10), core.ByText())
			tr := &nethttp.Transport{Limiter: l, Base: base}
			r, b := request(t, c.method, "http://example.com/", "hello", c.replay)
			if c.change != nil {
				c.change(r)
			}
			want := c.method + " hello"
			if r.Body != b {
				b.closed.Store(true)
				want = c.method + " "
			}
			before, header := *r, maps.Clone(r.Header)
			response, err := tr.RoundTrip(r)
			if err != nil {
				t.Fatal(err)
			}
			text := read(t, response)
			who := fmt.Sprintf("%s, %d, replay %v", c.method, c.status, c.replay)
			if len(got) != c.sent || got[0] != want || got[c.sent-1] != want {
				t.Errorf("%s: the server got %q, want %d times %q", who, got, c.sent, want)
			}
			refused := c.sent == 1 && (response.StatusCode != c.status || len(text) != 32_000)
			if refused || c.sent == 2 && response.StatusCode != 200 {
				t.Errorf("%s: status %d, %d bytes", who, response.StatusCode, len(text))
			}
			if n := used(t, l, "example.com"); n != c.sent {
				t.Errorf("%s: %d units used, want %d", who, n, c.sent)
			}
			if !b.closed.Load() || r.Body != before.Body || !reflect.DeepEqual(r.Header, header) {
				t.Errorf("%s: body closed %v, the request is %+v, was %+v", who, b.closed.Load(), r, before)
			}
			if n := network.dialed.Load(); n != 1 {
				t.Errorf("%s: %d connections, want the first used again", who, n)
			}
		})
	}
}

// endless is a body that never ends.
type endless struct {
	read   int
	closed bool
}

func (e *endless) Read(p []byte) (int, error) {
	e.read += len(p)
	return len(p), nil
}

func (e *endless) Close() error {
	e.closed = true
	return nil
}

func refusal(retryAfter string, b io.ReadCloser) *http.Response {
	return &http.Response{StatusCode: 429, Header: http.Header{"Retry-After": {retryAfter}}, Body: b}
}

func TestTransportGivesUp(t *testing.T) {
	transport := func(t *testing.T, base tripper) *nethttp.Transport {
		return &nethttp.Transport{Limiter: newLimiter(t, core.PerHour(100), core.ByText()), Base: base}
	}
	get := func() *http.Request { return httptest.NewRequest("GET", "http://example.com/", nil) }
	synctest.Test(t, func(t *testing.T) {
		var bodies []*endless
		tr := transport(t, func(*http.Request) (*http.Response, error) {
			bodies = append(bodies, &endless{})
			return refusal("2", bodies[len(bodies)-1]), nil
		})
		start := time.Now()
		response, err := tr.RoundTrip(get())
		if err != nil || response.StatusCode != 429 || len(bodies) != 4 || time.Since(start) != 6*time.Second {
			t.Fatalf("%+v, %v, sent %d times within %v; want 4 within 6s",
				response, err, len(bodies), time.Since(start))
		}
		for i, b := range bodies[:3] {
			if !b.closed || b.read < 32<<10 || b.read > 64<<10+512 {
				t.Errorf("response %d: read %d bytes, closed %v", i, b.read, b.closed)
			}
		}
		if last := bodies[3]; last.closed || last.read > 0 || response.Body != last {
			t.Errorf("the last response is not as it was: %+v", last)
		}
	})
	t.Run("no body", func(t *testing.T) { // responses of fakes may have none
		sent := 0
		tr := transport(t, func(*http.Request) (*http.Response, error) {
			sent++
			return refusal("0", nil), nil
		})
		if r, err := tr.RoundTrip(get()); err != nil || r.StatusCode != 429 || sent != 4 {
			t.Errorf("%+v, %v, sent %d times", r, err, sent)
		}
	})
	t.Run("an error", func(t *testing.T) {
		broken, sent := errors.New("broken"), 0
		tr := transport(t, func(*http.Request) (*http.Response, error) {
			sent++
			return nil, broken
		})
		if r, err := tr.RoundTrip(get()); r != nil || !errors.Is(err, broken) || sent != 1 {
			t.Errorf("%+v, %v, sent %d times", r, err, sent)
		}
	})
}

// pauses returns how many keys are paused. No request may be in flight.
func pauses(tr *nethttp.Transport) int { return reflect.ValueOf(tr).Elem().FieldByName("pauses").Len() }

func TestTransportPauses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		sent := map[string]int{}
		base := tripper(func(r *http.Request) (*http.Response, error) {
			mu.Lock()
			defer mu.Unlock()
			sent[r.URL.Path]++
			pause := map[string]string{"/first": "60", "/longer": "90"}[r.URL.Path]
			if pause != "" && sent[r.URL.Path] == 1 {
				return refusal(pause, http.NoBody), nil
			}
			return httptest.NewRecorder().Result(), nil
		})
		l := newLimiter(t, core.PerHour(100), core.ByText())
		tr := &nethttp.Transport{Limiter: l, Base: base}
		start := time.Now()
		var wg sync.WaitGroup
		send := func(url string, timeout time.Duration, after time.Duration, status int) {
			t.Helper()
			wg.Go(func() {
				r, b := request(t, "POST", url, "x", true)
				ctx, cancel := context.WithTimeout(t.Context(), timeout)
				defer cancel()
				response, err := tr.RoundTrip(r.WithContext(ctx))
				got := 0
				if err == nil {
					got = response.StatusCode
				} else if !errors.Is(err, context.DeadlineExceeded) || !b.closed.Load() {
					t.Errorf("%s: %v, body closed %v", url, err, b.closed.Load())
				}
				if got != status || time.Since(start) != after {
					t.Errorf("%s: status %d after %v, want %d after %v", url, got, time.Since(start), status, after)
				}
			})
			synctest.Wait()
		}
		send("http://example.com/first", time.Minute, 0, 429) // its context ends with the pause
		send("http://example.com/early", time.Minute, 0, 0)
		send("http://example.com/late", time.Minute+1, time.Minute, 200)
		send("http://example.net/other", time.Second, 0, 200)
		time.Sleep(time.Second)
		send("http://example.com/soon", time.Minute, time.Minute, 200)
		if n := used(t, l, "example.com"); n != 1 {
			t.Errorf("%d units used by who waits, want that of the first alone", n-1)
		}
		wg.Wait()
		synctest.Wait()
		if n := pauses(tr); n != 0 {
			t.Errorf("%d keys are paused, want none", n)
		}
		send("http://example.com/longer", time.Second, time.Minute, 429)
		wg.Wait()
		if sent["/early"] != 0 {
			t.Error("sent although it was refused")
		}
	})
}

// A shorter pause does not end a longer one, and a longer one also holds requests that wait already.
func TestTransportLongestPauseHolds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		base := func(r *http.Request) (*http.Response, error) {
			if after := r.URL.Query().Get("after"); after != "" { // an answer that takes that long
				d, _ := time.ParseDuration(after)
				time.Sleep(d)
				return refusal(r.URL.Query().Get("pause"), http.NoBody), nil
			}
			if got := time.Since(start); got != 2*time.Minute {
				t.Errorf("%s is sent after %v, want 2m", r.URL, got)
			}
			return httptest.NewRecorder().Result(), nil
		}
		tr := &nethttp.Transport{Limiter: newLimiter(t, core.PerHour(100), core.ByText()), Base: tripper(base)}
		var wg sync.WaitGroup
		send := func(query string) {
			wg.Go(func() {
				r, _ := request(t, "POST", "http://example.com/?"+query, "x", false)
				if _, err := tr.RoundTrip(r); err != nil {
					t.Error(err)
				}
			})
		}
		send("after=1s&pause=60")
		send("after=10s&pause=5")
		send("after=30s&pause=90")
		for range 8 { // from 2s to 107s
			time.Sleep(2 * time.Second)
			send("")
			time.Sleep(13 * time.Second)
		}
		wg.Wait()
		synctest.Wait()
		if n := pauses(tr); n != 0 {
			t.Errorf("%d keys are paused, want none", n)
		}
	})
}

// A request that gets its unit during a pause gives it back, and is sent afterwards for another: the unit would count
// from then, and not from its use.
func TestTransportUnitsCountWhenTheyAreUsed(t *testing.T) {
	for _, c := range []struct {
		policy   core.Policy
		requests int
		pause    string
		want     []time.Duration // in seconds
	}{
		{core.Limit{Quota: 2, Window: 10 * time.Second}, 4, "14", []time.Duration{0, 0, 15, 15, 25}},
		{core.TokenBucket(core.Limit{Quota: 1, Window: 10 * time.Second}, 1), 2, "12", []time.Duration{0, 13, 23}},
	} {
		synctest.Test(t, func(t *testing.T) {
			start := time.Now()
			var mu sync.Mutex
			var sent []time.Duration
			tr := &nethttp.Transport{
				Limiter: newLimiter(t, c.policy, core.ByText()),
				Base: tripper(func(*http.Request) (*http.Response, error) {
					mu.Lock()
					sent = append(sent, time.Since(start))
					n := len(sent)
					mu.Unlock()
					if n == 1 { // the answer comes when others are in the queue
						time.Sleep(time.Second)
						return refusal(c.pause, http.NoBody), nil
					}
					return httptest.NewRecorder().Result(), nil
				}),
			}
			var wg sync.WaitGroup
			for range c.requests {
				wg.Go(func() {
					if _, err := tr.RoundTrip(httptest.NewRequest("GET", "http://example.com/", nil)); err != nil {
						t.Error(err)
					}
				})
			}
			wg.Wait()
			for i := range sent {
				sent[i] /= time.Second
			}
			if !slices.Equal(sent, c.want) {
				t.Errorf("%v: sent after %d seconds, want %d", c.policy, sent, c.want)
			}
		})
	}
}

func TestTransportCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, core.Limit{Quota: 1, Window: time.Hour}, core.ByText())
		sent := 0
		tr := &nethttp.Transport{Limiter: l, Base: tripper(func(r *http.Request) (*http.Response, error) {
			sent++
			return refusal("1800", http.NoBody), r.Body.Close()
		})}
		var copies []*body
		cancelled := func(who string) {
			r, b := request(t, "POST", "http://example.com/", "x", true)
			r.GetBody = func() (io.ReadCloser, error) {
				copies = append(copies, &body{Reader: http.NoBody})
				return copies[len(copies)-1], nil
			}
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(time.Minute, cancel)
			start := time.Now()
			_, err := tr.RoundTrip(r.WithContext(ctx))
			if !errors.Is(err, context.Canceled) || !b.closed.Load() || time.Since(start) != time.Minute {
				t.Errorf("%s: %v after %v, body closed %v", who, err, time.Since(start), b.closed.Load())
			}
		}
		cancelled("sent, and paused")
		cancelled("in the pause of another")
		time.Sleep(30 * time.Minute)
		cancelled("in the queue")
		if n := used(t, l, "example.com"); n != 1 || sent != 1 || len(copies) != 1 || !copies[0].closed.Load() {
			t.Errorf("%d units used, %d sent, further bodies %v; want one, closed", n, sent, copies)
		}
		client := &http.Client{Transport: tr, Timeout: time.Minute}
		start := time.Now()
		var late interface{ Timeout() bool }
		_, err := client.Get("http://example.com/")
		if !errors.Is(err, context.DeadlineExceeded) || !errors.As(err, &late) || !time.Now().Equal(start) {
			t.Errorf("a client's timeout: %v after %v", err, time.Since(start))
		}
	})
}

// Of many concurrent requests, a server that refuses some of them never sees more than the quota.
func TestTransportCrowd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const quota, window, requests = 5, 10 * time.Second, 200
		var mu sync.Mutex
		rnd := rand.New(rand.NewPCG(3, 4))
		var served []time.Time
		refused, total := map[string]int{}, 0
		base, _ := remote(t, func(w http.ResponseWriter, r *http.Request) {
			io.Copy(io.Discard, r.Body)
			mu.Lock()
			defer mu.Unlock()
			served = append(served, time.Now())
			if rnd.IntN(10) == 0 {
				refused[r.URL.Path]++
				total++
				w.Header().Set("Retry-After", fmt.Sprint(rnd.IntN(30)))
				w.WriteHeader(429)
			}
		})
		l := newLimiter(t, core.Limit{Quota: quota, Window: window}, core.ByText())
		client := &http.Client{Transport: &nethttp.Transport{Limiter: l, Base: base}}
		var wg sync.WaitGroup
		for i := range requests {
			wg.Go(func() {
				path := fmt.Sprint("/", i)
				r, err := client.Post("http://example.com"+path, "text/plain", strings.NewReader("hello"))
				if err != nil {
					t.Error(err)
					return
				}
				read(t, r)
				mu.Lock()
				defer mu.Unlock()
				if n := refused[path]; r.StatusCode == 429 && n == 4 {
					total-- // and was not sent again
				} else if r.StatusCode != 200 || n > 3 {
					t.Errorf("%s: status %d, refused %d times", path, r.StatusCode, n)
				}
			})
		}
		wg.Wait()
		if len(served) != requests+total || total < 5 {
			t.Errorf("served %d of %d, of which %d were sent again", len(served), requests, total)
		}
		for i := quota; i < len(served); i++ {
			if within := served[i].Sub(served[i-quota]); within < window {
				t.Fatalf("%d requests within %v", quota+1, within)
			}
		}
	})
}

func TestTransportCloseIdleConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		base, network := remote(t, func(http.ResponseWriter, *http.Request) {})
		l := newLimiter(t, core.PerHour(10), core.ByText())
		client := &http.Client{Transport: &nethttp.Transport{Limiter: l, Base: base}}
		for i := range 3 {
			r, err := client.Get("http://example.com/")
			if err != nil {
				t.Fatal(err)
			}
			read(t, r)
			synctest.Wait()
			client.CloseIdleConnections()
			if n := network.dialed.Load(); n != int64(i+1) {
				t.Errorf("%d connections for %d requests", n, i+1)
			}
		}
		client.Transport = &nethttp.Transport{Base: tripper(nil)}
		client.CloseIdleConnections()
	})
}

// Under InFlight a request has its slot until the body of its response has been read or closed.
func TestTransportHoldsSlots(t *testing.T) {
	var down atomic.Bool
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case down.Load():
			panic(http.ErrAbortHandler)
		case r.Header.Get("Upgrade") != "":
			c, rw, err := http.NewResponseController(w).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			defer c.Close()
			rw.WriteString("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
			rw.Flush()
			line, _ := rw.ReadString('\n')
			io.WriteString(c, line)
		default:
			io.WriteString(w, "text")
		}
	}))
	defer server.Close()
	l := newLimiter(t, core.InFlight(1), core.ByText())
	client := &http.Client{Transport: &nethttp.Transport{
		Limiter: l, Key: func(*http.Request) string { return "k" },
	}}
	used := func(want int) {
		t.Helper()
		if d, err := l.Peek(t.Context(), "k"); err != nil || d.Used != want {
			t.Errorf("%v, %v: want %d in use", d, err, want)
		}
	}
	ask := func(method, upgrade string) *http.Response {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), method, server.URL, nil)
		if err != nil {
			t.Fatal(err)
		}
		if upgrade != "" {
			r.Header.Set("Connection", "Upgrade")
			r.Header.Set("Upgrade", upgrade)
		}
		response, err := client.Do(r)
		if (err != nil) != down.Load() {
			t.Fatal(err)
		}
		return response
	}
	for range 3 {
		response := ask(http.MethodGet, "")
		used(1)
		if body, err := io.ReadAll(response.Body); string(body) != "text" || err != nil {
			t.Errorf("%q, %v", body, err)
		}
		used(0)
		response.Body.Close()
		response = ask(http.MethodGet, "")
		used(1)
		response.Body.Close()
		used(0)
		ask(http.MethodHead, "").Body.Close()
		used(0)
		response = ask(http.MethodGet, "echo")
		used(1)
		if _, err := io.WriteString(response.Body.(io.Writer), "ping\n"); err != nil {
			t.Error(err)
		}
		if body, err := io.ReadAll(response.Body); string(body) != "ping\n" || err != nil {
			t.Errorf("%q, %v", body, err)
		}
		response.Body.Close()
		used(0)
		down.Store(true)
		ask(http.MethodPost, "")
		used(0)
		down.Store(false)
	}
}

// A transport asks about hosts, whatever the key of its limiter is for.
func TestTransportAsksByText(t *testing.T) {
	for _, key := range []core.Key{core.ByText(), core.Global(), core.ByIP()} {
		l := newLimiter(t, core.PerHour(1), key)
		transport := &nethttp.Transport{Limiter: l, Base: tripper(func(*http.Request) (*http.Response, error) {
			return httptest.NewRecorder().Result(), nil
		})}
		for _, test := range []struct {
			url     string
			allowed bool
		}{
			{"http://A.example/", true}, {"http://a.Example/2", false}, {"http://a.example:8080/", true},
			{"http://b.example/", true}, {"http://b.example/", false},
		} {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			_, err := transport.RoundTrip(httptest.NewRequestWithContext(ctx, "GET", test.url, http.NoBody))
			cancel()
			if (err == nil) != test.allowed || err != nil && !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%s: %v, want allowed %v", test.url, err, test.allowed)
			}
		}
	}
}
