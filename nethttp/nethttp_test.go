package nethttp_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/coretest"
	"github.com/sashlimit/sash/core/coretest/redistest"
	"github.com/sashlimit/sash/core/redisstore"
	"github.com/sashlimit/sash/nethttp"
)

var ok = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) })

func handler(text func() string, limiters ...*core.Limiter) http.Handler {
	h := func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, text()) }
	return mount(http.HandlerFunc(h), limiters...)
}

func mount(h http.Handler, limiters ...*core.Limiter) http.Handler {
	for _, l := range slices.Backward(limiters) {
		h = nethttp.From(l)(h)
	}
	return h
}

func TestAdapter(t *testing.T) {
	coretest.Adapter(t, coretest.AdapterConfig{
		Serve: func(t *testing.T, text func() string, limiters ...*core.Limiter) func(*http.Request) *http.Response {
			return coretest.HTTP1(t, handler(text, limiters...))
		},
		HTTP2: func(t *testing.T, text func() string, limiters ...*core.Limiter) func(*http.Request) *http.Response {
			return coretest.HTTP2(t, handler(text, limiters...))
		},
		Handler: mount,
	})
}

// serve stays within the process, and so within a bubble.
func serve(_ *testing.T, text func() string, limiters ...*core.Limiter) func(*http.Request) *http.Response {
	return coretest.InProcess(handler(text, limiters...))
}

func TestHeadersMemory(t *testing.T) {
	coretest.Headers(t, coretest.StoreConfig{
		New: func(*testing.T) coretest.Clocked {
			return coretest.Clocked{Store: core.NewMemoryStore(), Now: time.Now, Advance: time.Sleep}
		},
		Run: func(t *testing.T, f func(*testing.T)) { synctest.Test(t, f) },
	}, serve)
}

func TestHeadersRedis(t *testing.T) {
	server := redistest.Start(t)
	coretest.Headers(t, coretest.StoreConfig{
		New: func(t *testing.T) coretest.Clocked {
			rdb := redis.NewClient(&redis.Options{Addr: server.Addr()})
			t.Cleanup(func() { rdb.Close() })
			rdb.FlushAll(t.Context())
			clock := redistest.NewClock()
			return coretest.Clocked{Store: redisstore.New(stepped{rdb, clock}), Now: clock.Now, Advance: clock.Advance}
		},
	}, serve)
}

// stepped runs the store's scripts at the clock's time.
type stepped struct {
	*redis.Client
	clock *redistest.Clock
}

func (s stepped) EvalSha(ctx context.Context, _ string, _ []string, _ ...any) *redis.Cmd {
	cmd := redis.NewCmd(ctx)
	cmd.SetErr(redistest.ErrNoScript)
	return cmd
}

func (s stepped) Eval(ctx context.Context, text string, keys []string, args ...any) *redis.Cmd {
	text, keys = s.clock.Script(text, keys)
	return s.Client.Eval(ctx, text, keys, args...)
}

func get(h http.Handler, change ...func(*http.Request)) *httptest.ResponseRecorder {
	r := httptest.NewRequest("GET", "/", nil)
	for _, f := range change {
		f(r)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func TestErrorHandler(t *testing.T) {
	h := nethttp.New(core.PerMinute(1), core.ByHeader("X-API-Key", core.Unverified),
		nethttp.WithError(func(w http.ResponseWriter, _ *http.Request, err error) {
			if errors.Is(err, core.ErrNoKey) {
				w.WriteHeader(http.StatusUnauthorized)
			}
		}))(ok)
	if w := get(h); w.Code != http.StatusUnauthorized {
		t.Errorf("status %d", w.Code)
	}
}

func TestDenyHandlers(t *testing.T) {
	for _, c := range []struct {
		desc   string
		deny   func(http.ResponseWriter, *http.Request, core.Decision)
		status int
		body   string
	}{
		{"writes nothing", func(http.ResponseWriter, *http.Request, core.Decision) {}, 429, ""},
		{"writes a body", func(w http.ResponseWriter, _ *http.Request, _ core.Decision) {
			io.WriteString(w, "slow down")
		}, 429, "slow down"},
		{"writes a status", func(w http.ResponseWriter, _ *http.Request, _ core.Decision) {
			w.WriteHeader(503)
		}, 503, ""},
		{"http.Error", func(w http.ResponseWriter, _ *http.Request, d core.Decision) {
			http.Error(w, strings.Join(d.Violated, ","), http.StatusTooManyRequests)
		}, 429, "1-per-minute\n"},
	} {
		h := nethttp.New(core.PerMinute(1), core.ByIP(), nethttp.WithDeny(c.deny))(ok)
		get(h)
		w := get(h)
		if w.Code != c.status || w.Body.String() != c.body || w.Header().Get("Retry-After") != "60" {
			t.Errorf("%s: status %d, body %q, header %v", c.desc, w.Code, w.Body, w.Header())
		}
	}
}

// The fields of X-RateLimit, of which there can be one each, are those of the tighter of two limiters.
func TestLegacyFieldsOfTwoLimiters(t *testing.T) {
	inner := nethttp.New(core.PerSecond(1), core.ByIP(), core.WithHeaders(core.HeadersBoth))(ok)
	h := nethttp.New(core.PerHour(5), core.ByIP(), core.WithHeaders(core.HeadersBoth))(inner)
	for range 2 {
		if got := get(h).Header().Values("X-RateLimit-Limit"); !slices.Equal(got, []string{"1"}) {
			t.Errorf("X-RateLimit-Limit %q, want that of the tighter limit", got)
		}
	}
}

// A callback for another framework, such as echo, is refused before the first request.
func TestForeignCallbacks(t *testing.T) {
	type foreign struct{}
	message := func(f func()) (s string) {
		defer func() { s, _ = recover().(error).Error(), true }()
		f()
		return ""
	}
	got := message(func() {
		nethttp.New(core.Limit{}, core.By(func(*foreign) (string, error) { return "", nil }),
			core.WithSkip(func(foreign) bool { return false }), core.WithName("A B"),
			core.WithRefund[*http.Request](nil))
	})
	for _, want := range []string{
		"the quota is out of range", "By(func(*nethttp_test.foreign))", "*http.Request",
		"WithSkip(func(nethttp_test.foreign))", `WithName("A B")`, "WithRefund(nil)",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("the panic says\n%s\nwant %q in it", got, want)
		}
	}
	l, err := core.New(core.PerSecond(1), core.By(func(*foreign) (string, error) { return "", nil }),
		core.WithRefund(func(foreign, int) bool { return true }))
	if err != nil {
		t.Fatal(err)
	}
	got = message(func() { nethttp.From(l) })
	for _, want := range []string{"By(func(*nethttp_test.foreign))", "WithRefund(func(nethttp_test.foreign))"} {
		if !strings.Contains(got, want) {
			t.Errorf("From: %s", got)
		}
	}
	if got := message(func() { nethttp.From(nil) }); !strings.Contains(got, "core.New") {
		t.Errorf("From(nil): %s", got)
	}
}

func TestContextCallbacks(t *testing.T) {
	type key struct{}
	h := nethttp.New(core.PerMinute(1), core.By(func(ctx context.Context) (string, error) {
		user, _ := ctx.Value(key{}).(string)
		return user, nil
	}))(ok)
	as := func(user string) func(*http.Request) {
		return func(r *http.Request) { *r = *r.WithContext(context.WithValue(r.Context(), key{}, user)) }
	}
	for _, c := range []struct {
		user   string
		status int
	}{{"ann", 200}, {"bob", 200}, {"ann", 429}, {"", 400}} {
		if w := get(h, as(c.user)); w.Code != c.status {
			t.Errorf("user %q: status %d, want %d", c.user, w.Code, c.status)
		}
	}
}

func TestClientIP(t *testing.T) { coretest.ClientIP(t, serve) }

// A handler panics with http.ErrAbortHandler to make net/http cut the connection.
func TestAbortHandler(t *testing.T) {
	abort := core.By(func(*http.Request) (string, error) { panic(http.ErrAbortHandler) })
	server := httptest.NewServer(nethttp.New(core.PerMinute(1), abort)(ok))
	defer server.Close()
	if r, err := http.Get(server.URL); err == nil {
		r.Body.Close()
		t.Errorf("status %d, want a connection that is cut", r.StatusCode)
	}
}
