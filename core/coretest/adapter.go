package coretest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/adapter"
)

// AdapterConfig says how to serve with the adapter under test.
type AdapterConfig struct {
	// App mounts limiters, the outermost first, on all methods and paths in front of a handler that answers 200 with
	// text. It is for frameworks on net/http, and is served over HTTP/1.1 and HTTP/2.
	App func(text func() string, limiters ...*core.Limiter) http.Handler

	// Serve and Peers are for frameworks with a server of their own, in place of App. The requests of Peers come from
	// their RemoteAddr, and to the listener of [http.LocalAddrContextKey].
	Serve, Peers Serve

	// Handler mounts limiters as App does in front of any handler. It is for frameworks on net/http, whose adapters
	// must report the status that was sent and end what InFlight holds, also if the client leaves or the handler panics
	// or hijacks the connection. They answer calls of gRPC and Connect in their protocol.
	Handler func(next http.Handler, limiters ...*core.Limiter) http.Handler
}

// Adapter tests that limiters answer with the same status, header fields and bytes, whatever the framework. It makes
// the limiters with [core.New], so what an adapter has beside its From needs tests of its own: New, WithDeny,
// WithError, ByRoute, and the values of earlier middleware.
func Adapter(t *testing.T, c AdapterConfig) {
	serve, peers, two := c.Serve, c.Peers, Serve(nil)
	if c.App != nil {
		type send = func(*http.Request) *http.Response
		over := func(protocol func(*testing.T, http.Handler) send) Serve {
			return func(t *testing.T, text func() string, limiters ...*core.Limiter) send {
				return protocol(t, c.App(text, limiters...))
			}
		}
		serve, peers, two = over(HTTP1), over(inProcess), over(HTTP2)
	}
	if serve == nil || peers == nil {
		t.Fatal("coretest.AdapterConfig needs App, or Serve and Peers")
	}
	for _, test := range []struct {
		name string
		f    func(*testing.T, Serve)
	}{
		{"Answers", func(t *testing.T, serve Serve) { answers(t, serve, c.App != nil) }},
		{"HeaderFields", headerFields},
		{"SameLimiterTwice", sameLimiterTwice},
		{"Identities", identities},
	} {
		t.Run(test.name, func(t *testing.T) { test.f(t, serve) })
		if two != nil {
			t.Run("HTTP2/"+test.name, func(t *testing.T) { test.f(t, two) })
		}
	}
	t.Run("ClientIP", func(t *testing.T) { ClientIP(t, peers) })
	t.Run("Trailers", func(t *testing.T) { trailers(t, serve) })
	if c.Handler != nil {
		t.Run("Responses", func(t *testing.T) { responses(t, c.Handler) })
		t.Run("Copies", func(t *testing.T) { copies(t, c.Handler) })
	}
}

// loopback are the addresses from which the suite's requests come.
var loopback = []string{"127.0.0.0/8", "::1"}

// answers checks status, header fields and body of each kind of answer.
func answers(t *testing.T, serve Serve, calls bool) {
	type want struct {
		status int
		header fields
		body   string
		ran    bool
	}
	served := func(left int) want { return want{200, allowed(left), text, true} }
	full := want{429, denied(`"3-per-10s";r=0;t=10`, "10"), deniedBody, false}
	unlimited := want{200, nil, text, true}
	noKey := want{400, problem(nil), noKeyBody, false}
	broken := want{500, problem(nil), brokenBody, false}

	boom := errors.New("boom at 10.0.0.1:6379")
	byMissing := core.ByHeader("X-Missing", core.Unverified)
	panicking := core.By(func(context.Context) (string, error) { panic(boom) })
	failClosed := core.WithFailure(core.FailClosed)
	for _, c := range []struct {
		desc   string
		key    core.Key // if it is zero, ByIP
		opts   []core.Option
		method string
		call   string // the content type of RPC, for frameworks on net/http
		fail   error  // of the store
		want   []want // of one request after another
	}{
		{desc: "allowed, then denied", want: []want{served(2), served(1), served(0), full, full}},
		{desc: "OPTIONS", method: "OPTIONS", want: []want{served(2), served(1), served(0), full}},
		{desc: "HEAD", method: "HEAD", want: []want{
			{200, allowed(2), "", true}, {200, allowed(1), "", true}, {200, allowed(0), "", true},
			{429, full.header, "", false},
		}},
		{desc: "no key", key: byMissing, want: []want{noKey, noKey}},
		{desc: "a callback panics", key: panicking, want: []want{broken, broken}},
		{desc: "store error", fail: boom, opts: []core.Option{failClosed}, want: []want{
			{503, problem(fields{"Retry-After": "1"}), storeBody, false},
		}},
		{desc: "store error, FailOpen", fail: boom, opts: []core.Option{core.WithFailure(core.FailOpen)},
			want: []want{unlimited, unlimited, unlimited, unlimited}},
		{desc: "allow list, before key and store", key: byMissing, fail: boom, want: []want{unlimited, unlimited},
			opts: []core.Option{core.WithAllowList(core.ByIP(), loopback...), failClosed}},
		{desc: "deny list, before key and store", key: byMissing, fail: boom,
			want: []want{{403, problem(nil), forbidden, false}},
			opts: []core.Option{core.WithDenyList(core.ByIP(), loopback...), failClosed}},
		{desc: "more than the quota", opts: []core.Option{core.WithCost(func(context.Context) int { return 4 })},
			want: []want{{429, denied(`"3-per-10s";r=3`, ""), neverBody, false}}},
		{desc: "Connect", call: "application/proto", want: []want{served(2), served(1), served(0),
			{429, rpc("application/json", full.header), deniedCall, false}}},
		{desc: "stream of Connect", call: "application/connect+proto", want: []want{served(2), served(1), served(0),
			{200, rpc("application/connect+proto", full.header), deniedStream, false}}},
		{desc: "gRPC", call: "application/grpc", want: []want{served(2), served(1), served(0),
			{200, rpc("application/grpc", full.header, deniedGRPC), "", false}}},
		{desc: "gRPC, panic", call: "application/grpc", key: panicking, want: []want{
			{200, rpc("application/grpc", fields{"Cache-Control": "no-store"}, brokenGRPC), "", false}}},
	} {
		t.Run(c.desc, func(t *testing.T) {
			if c.call != "" && !calls {
				t.Skip("for frameworks on net/http")
			}
			store := new(FakeStore)
			store.Fail(c.fail)
			if c.key == (core.Key{}) {
				c.key = core.ByIP()
			}
			ran := false
			send := serve(t, func() string { ran = true; return text }, limiterFor(t, store, three, c.key, c.opts...))
			for i, want := range c.want {
				ran = false
				q := newRequest(t, c.method)
				if c.call != "" {
					q.Method = http.MethodPost
					q.Header.Set("Content-Type", c.call)
				}
				r := send(q)
				body, _ := io.ReadAll(r.Body)
				if r.StatusCode != want.status || string(body) != want.body || ran != want.ran {
					t.Errorf("request %d: status %d, body %s, handler ran %v; want %d, %s, %v",
						i+1, r.StatusCode, body, ran, want.status, want.body, want.ran)
				}
				checkFields(t, fmt.Sprintf("request %d", i+1), r, want.header)
			}
		})
	}
}

// headerFields checks the fields of several styles, and those behind two limiters: an inner one adds to what an outer
// one has written, replaces it or removes it.
func headerFields(t *testing.T, serve Serve) {
	legacy := fields{"X-RateLimit-Limit": "3", "X-RateLimit-Remaining": "2", "X-RateLimit-Reset": "10"}
	both := allowed(2)
	maps.Copy(both, legacy)
	hour, policies := core.PerHour(99), `"99-per-hour";q=99;w=3600`
	for _, c := range []struct {
		desc         string
		outer, inner core.Policy
		opts         []core.Option // of the inner limiter
		nth          int           // request, of which these are the fields
		want         fields
	}{
		{"both", nil, three, []core.Option{core.WithHeaders(core.HeadersBoth)}, 1, both},
		{"by unit", nil, three, []core.Option{core.WithHeaders(core.HeadersByUnit)}, 4, problem(fields{
			"X-RateLimit-Limit-Requests": "3", "X-RateLimit-Remaining-Requests": "0",
			"X-RateLimit-Reset-Requests": "10s", "Cache-Control": "no-store", "Retry-After": "10",
		})},
		{"two limiters", hour, three, nil, 3, fields{
			"RateLimit-Policy": policies + ", " + policyField,
			"RateLimit":        `"99-per-hour";r=96;t=3600, "3-per-10s";r=0;t=10`,
		}},
		{"by a function", nil, three, []core.Option{core.WithHeadersFunc(func(_ core.Decision, h adapter.HeaderMap) {
			h.Set("x-note", "a")
			h.Set("retry-after", "1"+h.Get("retry-AFTER"))
		})}, 4, problem(fields{
			"RateLimit-Policy": policyField, "RateLimit": `"3-per-10s";r=0;t=10`, "Cache-Control": "no-store",
			"Retry-After": "110", "X-Note": "a",
		})},
		{"banned by the inner one", hour, three, []core.Option{core.WithBan(1, time.Minute, 30*time.Second)}, 5,
			problem(fields{"RateLimit-Policy": policies, "Cache-Control": "no-store", "Retry-After": "30"})},
	} {
		store := new(FakeStore)
		limiters := []*core.Limiter{limiterFor(t, store, c.inner, core.ByIP(), c.opts...)}
		if c.outer != nil {
			limiters = []*core.Limiter{limiterFor(t, store, c.outer, core.ByIP()), limiters[0]}
		}
		send := serve(t, func() string { return text }, limiters...)
		for range c.nth - 1 {
			send(newRequest(t, "GET"))
		}
		checkFields(t, fmt.Sprintf("%s, request %d", c.desc, c.nth), send(newRequest(t, "GET")), c.want)
	}
}

// A limiter that is mounted three times counts each request three times, but a request takes one permit of it, which is
// free again when the answer is complete.
func sameLimiterTwice(t *testing.T, serve Serve) {
	l := limiterFor(t, new(FakeStore), core.Limits{core.PerHour(7), core.InFlight(1)}, core.ByIP())
	send := serve(t, func() string { return text }, l, l, l)
	for n, status := range []int{http.StatusOK, http.StatusOK, http.StatusTooManyRequests} {
		if r := send(newRequest(t, "GET")); r.StatusCode != status {
			t.Errorf("request %d: status %d, want %d", n+1, r.StatusCode, status)
		}
	}
}

// Keys of equal length alternate on connections that are kept alive, and each has its quota, whatever comes at the same
// time. If a framework reuses the memory of a request and a key still points there, one key turns into another.
func identities(t *testing.T, serve Serve) {
	const connections, rounds, keys, quota = 64, 12, 6, 100
	type seen struct {
		key     string
		allowed bool
	}
	var all []seen
	var mu sync.Mutex
	l := limiterFor(t, core.NewMemoryStore(), core.PerHour(quota), core.ByHeader("X-API-Key", core.Unverified),
		core.WithObserver(func(_ context.Context, e core.Event) {
			mu.Lock()
			defer mu.Unlock()
			all = append(all, seen{e.Key, e.Decision.Allowed})
		}))
	send := serve(t, func() string { return text }, l)
	var wg sync.WaitGroup
	for i := range connections {
		wg.Go(func() {
			for round := range rounds {
				r := newRequest(t, "GET")
				r.Header.Set("X-Api-Key", fmt.Sprintf("key-%c", 'A'+(i+round)%keys))
				send(r)
			}
		})
	}
	wg.Wait()
	got, want := map[seen]int{}, map[seen]int{}
	for _, s := range all {
		got[s]++
	}
	for i := range keys {
		key := fmt.Sprintf("key-%c", 'A'+i)
		want[seen{key, true}], want[seen{key, false}] = quota, connections*rounds/keys-quota
	}
	if !maps.Equal(got, want) {
		t.Errorf("the observer has seen %v, want %v", got, want)
	}
}
