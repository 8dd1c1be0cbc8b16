package coretest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sashlimit/sash/core"
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
		{"Answers", answers},
		{"HeaderStyles", headerStyles},
		{"SameLimiterTwice", sameLimiterTwice},
		{"TwoLimiters", twoLimiters},
		{"InnerRefusals", innerRefusals},
		{"InFlight", requestsInFlight},
		{"Refunds", refunds},
		{"Identities", identities},
	} {
		t.Run(test.name, func(t *testing.T) { test.f(t, serve) })
		if two != nil {
			t.Run("HTTP2/"+test.name, func(t *testing.T) { test.f(t, two) })
		}
	}
	t.Run("ClientIP", func(t *testing.T) { ClientIP(t, peers) })
	t.Run("Headers", func(t *testing.T) { headers(t, serve) })
	t.Run("Trailers", func(t *testing.T) { trailers(t, serve) })
	if c.Handler != nil {
		t.Run("Responses", func(t *testing.T) { responses(t, c.Handler) })
		t.Run("Calls", func(t *testing.T) { calls(t, c.Handler) })
	}
}

// loopback are the addresses from which the suite's requests come.
var loopback = []string{"127.0.0.0/8", "::1"}

// answers checks status, header fields and body of the answer to every kind of request.
func answers(t *testing.T, serve Serve) {
	type want struct {
		status int
		header fields
		body   string
		ran    bool
	}
	served := func(left int) want { return want{200, allowed(left), text, true} }
	full := want{429, denied(`"3-per-10s";r=0;t=10`, "10"), deniedBody, false}
	broken := want{500, problem(nil), brokenBody, false}
	refused := want{403, problem(nil), forbidden, false}
	skipped := want{200, nil, text, true}
	noKey := want{400, problem(nil), noKeyBody, false}

	boom := errors.New("boom at 10.0.0.1:6379")
	by := func(f func(context.Context) (string, error)) *core.Key { k := core.By(f); return &k }
	header := core.ByHeader("X-Missing", core.Unverified)
	value := core.ByValue("missing")
	failing := func(context.Context) (string, error) { return "", boom }
	panics := 0
	panicking := func(context.Context) (string, error) { panic(boom) }
	options := func(opts ...core.Option) []core.Option { return opts }
	allow := core.WithAllowList(core.ByIP(), loopback...)
	deny := core.WithDenyList(core.ByIP(), loopback...)
	failClosed, failOpen := core.WithFailure(core.FailClosed), core.WithFailure(core.FailOpen)
	cost := func(n int) core.Option { return core.WithCost(func(context.Context) int { return n }) }
	for _, c := range []struct {
		desc   string
		policy core.Policy
		key    *core.Key
		opts   []core.Option
		method string
		fail   error
		want   []want // of one request after another
	}{
		{desc: "allowed, then denied", want: []want{served(2), served(1), served(0), full, full}},
		{desc: "OPTIONS counts", method: "OPTIONS", want: []want{served(2), served(1), served(0), full}},
		{desc: "POST counts", method: "POST", want: []want{served(2), served(1), served(0), full}},
		{desc: "HEAD counts", method: "HEAD", want: []want{
			{200, allowed(2), "", true}, {200, allowed(1), "", true}, {200, allowed(0), "", true},
			{429, full.header, "", false},
		}},
		{desc: "no key", key: &header, want: []want{noKey, noKey}},
		{desc: "no such value", key: &value, want: []want{noKey}},
		{desc: "store error, FailClosed", fail: boom, opts: options(failClosed), want: []want{
			{503, problem(fields{"Retry-After": "1"}), storeBody, false},
		}},
		{desc: "store error, FailOpen", fail: boom, opts: options(failOpen),
			want: []want{skipped, skipped, skipped, skipped}},
		{desc: "store error, FailLocal", fail: boom, want: []want{served(2), served(1), served(0), full, full}},
		{desc: "key callback fails", key: by(failing), want: []want{broken}},
		{desc: "key callback panics, and takes nothing", key: by(func(context.Context) (string, error) {
			if panics++; panics < 4 {
				panic(boom)
			}
			return "k", nil
		}), want: []want{broken, broken, broken, served(2), served(1), served(0), full}},
		{desc: "key callback panics with an error", want: []want{broken, broken},
			key: by(func(context.Context) (string, error) { panic(io.ErrUnexpectedEOF) })},
		{desc: "skip callback panics", want: []want{broken},
			opts: options(core.WithSkip(func(context.Context) bool { panic("boom") }))},
		{desc: "cost callback panics", want: []want{broken},
			opts: options(core.WithCost(func(context.Context) int { panic("boom") }))},
		{desc: "observer panics", want: []want{served(2), served(1), served(0), full},
			opts: options(core.WithObserver(func(context.Context, core.Event) { panic("boom") }))},
		{desc: "policy callback panics", want: []want{broken},
			policy: core.LimitBy(func(context.Context) core.Limits { panic("boom") })},
		{desc: "skip", want: []want{skipped, skipped},
			opts: options(core.WithSkip(func(context.Context) bool { return true }))},
		{desc: "deny list", opts: options(deny), want: []want{refused, refused}},
		{desc: "deny list, HEAD", method: "HEAD", opts: options(deny), want: []want{{403, problem(nil), "", false}}},
		{desc: "deny list without a key", key: &header, opts: options(deny), want: []want{refused}},
		{desc: "deny list and store error", opts: options(deny), fail: boom, want: []want{refused}},
		{desc: "deny list of others", want: []want{served(2)},
			opts: options(core.WithDenyList(core.ByIP(), "192.0.2.0/24", "2001:db8::/32"))},
		{desc: "deny list without its key", want: []want{served(2)},
			opts: options(core.WithDenyList(header, "mallory"))},
		{desc: "allow list", opts: options(allow), want: []want{skipped, skipped, skipped, skipped}},
		{desc: "allow list without a key", key: &header, opts: options(allow), want: []want{skipped}},
		{desc: "allow list and store error", opts: options(allow, failClosed), fail: boom, want: []want{skipped}},
		{desc: "allow list, then deny list", opts: options(allow, deny), want: []want{refused}},
		{desc: "deny list, then allow list", opts: options(deny, allow), want: []want{refused}},
		{desc: "key of a list fails", want: []want{broken},
			opts: options(core.WithAllowList(core.By(failing), "ann"))},
		{desc: "key of a list panics", want: []want{broken, broken},
			opts: options(core.WithDenyList(core.By(panicking), "ann"))},
		{desc: "denials count", opts: options(core.WithCountDenied()),
			want: []want{served(2), served(1), served(0), full, full}},
		{desc: "cost 2 of 3", opts: options(cost(2)), want: []want{
			served(1), {429, denied(`"3-per-10s";r=1;t=10`, "10"), deniedBody, false},
		}},
		{desc: "cost 4 of 3", opts: options(cost(4)), want: []want{
			{429, denied(`"3-per-10s";r=3`, ""), neverBody, false},
		}},
		{desc: "cost 0", opts: options(cost(0)), want: []want{broken}},
		{desc: "limits by request", want: []want{served(2), served(1), served(0), full},
			policy: core.LimitBy(func(context.Context) core.Limits { return core.Limits{three} })},
		{desc: "no limits by request", want: []want{broken},
			policy: core.LimitBy(func(context.Context) core.Limits { return nil })},
	} {
		t.Run(c.desc, func(t *testing.T) {
			store := new(FakeStore)
			store.Fail(c.fail)
			policy, key := core.Policy(three), core.ByIP()
			if c.policy != nil {
				policy = c.policy
			}
			if c.key != nil {
				key = *c.key
			}
			l := limiterFor(t, store, policy, key, c.opts...)
			ran := false
			send := serve(t, func() string { ran = true; return text }, l)
			for i, want := range c.want {
				ran = false
				method := c.method
				if method == "" {
					method = "GET"
				}
				r := send(newRequest(t, method))
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

func headerStyles(t *testing.T, serve Serve) {
	legacy := func(left, reset string) fields {
		return fields{"X-RateLimit-Limit": "3", "X-RateLimit-Remaining": left, "X-RateLimit-Reset": reset}
	}
	byUnit := fields{
		"X-RateLimit-Limit-Requests": "3", "X-RateLimit-Remaining-Requests": "2", "X-RateLimit-Reset-Requests": "10s",
	}
	both := allowed(2)
	maps.Copy(both, legacy("2", "10"))
	for _, c := range []struct {
		style  core.Headers
		first  fields
		denied fields
	}{
		{core.HeadersDraft, allowed(2), denied(`"3-per-10s";r=0;t=10`, "10")},
		{core.HeadersLegacy, legacy("2", "10"), problem(fields{
			"Retry-After": "10", "Cache-Control": "no-store",
			"X-RateLimit-Limit": "3", "X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "10",
		})},
		{core.HeadersNone, nil, problem(fields{"Retry-After": "10", "Cache-Control": "no-store"})},
		{core.HeadersBoth, both, nil},
		{core.HeadersByUnit, byUnit, problem(fields{
			"Retry-After": "10", "Cache-Control": "no-store", "X-RateLimit-Limit-Requests": "3",
			"X-RateLimit-Remaining-Requests": "0", "X-RateLimit-Reset-Requests": "10s",
		})},
	} {
		l := limiterFor(t, new(FakeStore), three, core.ByIP(), core.WithHeaders(c.style))
		send := serve(t, func() string { return text }, l)
		checkFields(t, fmt.Sprintf("style %d, allowed", c.style), send(newRequest(t, "GET")), c.first)
		send(newRequest(t, "GET"))
		send(newRequest(t, "GET"))
		if c.denied != nil {
			checkFields(t, fmt.Sprintf("style %d, denied", c.style), send(newRequest(t, "GET")), c.denied)
		}
	}
}

// A limiter that is mounted three times counts each request three times, but a request takes one permit of it.
func sameLimiterTwice(t *testing.T, serve Serve) {
	l := limiterFor(t, new(FakeStore), core.Limits{core.PerHour(7), core.InFlight(1)}, core.ByIP())
	send := serve(t, func() string { return text }, l, l, l)
	for n, status := range []int{http.StatusOK, http.StatusOK, http.StatusTooManyRequests} {
		if r := send(newRequest(t, "GET")); r.StatusCode != status {
			t.Errorf("request %d: status %d, want %d", n+1, r.StatusCode, status)
		}
	}
}

func twoLimiters(t *testing.T, serve Serve) {
	store := new(FakeStore)
	hour := limiterFor(t, store, core.PerHour(9), core.ByIP())
	send := serve(t, func() string { return text }, hour, limiterFor(t, store, three, core.ByIP()))
	policies := `"9-per-hour";q=9;w=3600, ` + policyField
	for i := range 3 {
		checkFields(t, fmt.Sprintf("request %d", i+1), send(newRequest(t, "GET")), fields{
			"RateLimit-Policy": policies,
			"RateLimit":        fmt.Sprintf(`"9-per-hour";r=%d;t=3600, "3-per-10s";r=%d;t=10`, 8-i, 2-i),
		})
	}
	want := denied(`"3-per-10s";r=0;t=10`, "10")
	want["RateLimit-Policy"] = policies
	checkFields(t, "denied by the inner one", send(newRequest(t, "GET")), want)
}

// What an inner limiter does not know, such as the window's end during a ban, is not left from an outer one.
func innerRefusals(t *testing.T, serve Serve) {
	store := new(FakeStore)
	hour := limiterFor(t, store, core.PerHour(99), core.ByIP())
	send := serve(t, func() string { return text }, hour,
		limiterFor(t, store, three, core.ByIP(), core.WithBan(1, time.Minute, 30*time.Second)))
	for range 4 {
		send(newRequest(t, "GET"))
	}
	checkFields(t, "banned by the inner one", send(newRequest(t, "GET")), problem(fields{
		"RateLimit-Policy": `"99-per-hour";q=99;w=3600`, "Retry-After": "30", "Cache-Control": "no-store",
	}))
	send = serve(t, func() string { return text }, hour,
		limiterFor(t, store, three, core.ByIP(), core.WithName("other"), core.WithHeaders(core.HeadersLegacy)))
	for range 3 {
		send(newRequest(t, "GET"))
	}
	checkFields(t, "denied by an inner one with other fields", send(newRequest(t, "GET")), problem(fields{
		"RateLimit-Policy": `"99-per-hour";q=99;w=3600`, "Retry-After": "10", "Cache-Control": "no-store",
		"X-RateLimit-Limit": "3", "X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "10",
	}))
	legacy := core.WithHeaders(core.HeadersLegacy)
	send = serve(t, func() string { return text },
		limiterFor(t, store, core.PerHour(99), core.ByIP(), core.WithName("legacy"), legacy),
		limiterFor(t, store, core.InFlight(1), core.ByIP(), legacy))
	checkFields(t, "one in flight", send(newRequest(t, "GET")), fields{
		"X-RateLimit-Limit": "1", "X-RateLimit-Remaining": "0",
	})
}

// A request's cost is refunded if WithRefund says so of its status, before the client receives the answer.
func refunds(t *testing.T, serve Serve) {
	full := denied(`"3-per-10s";r=0;t=10`, "10")
	for _, c := range []struct {
		desc  string
		back  func(status int) bool
		skip  bool
		asked int64
		want  []fields // of one request after another
	}{
		{desc: "200", back: func(status int) bool { return status == 200 }, asked: 5,
			want: []fields{allowed(2), allowed(2), allowed(2), allowed(2), allowed(2)}},
		{desc: "400 and above", back: func(status int) bool { return status >= 400 }, asked: 3,
			want: []fields{allowed(2), allowed(1), allowed(0), full, full}},
		{desc: "panic", back: func(int) bool { panic("boom") }, asked: 3,
			want: []fields{allowed(2), allowed(1), allowed(0), full, full}},
		{desc: "skipped", skip: true, want: make([]fields, 5)},
	} {
		var asked atomic.Int64
		l := limiterFor(t, new(FakeStore), three, core.ByIP(),
			core.WithSkip(func(context.Context) bool { return c.skip }),
			core.WithRefund(func(_ context.Context, status int) bool { asked.Add(1); return c.back(status) }))
		send := serve(t, func() string { return text }, l)
		for i, want := range c.want {
			r := send(newRequest(t, "GET"))
			checkFields(t, fmt.Sprintf("%s, request %d", c.desc, i+1), r, want)
			if body, _ := io.ReadAll(r.Body); r.StatusCode == 200 && string(body) != text {
				t.Errorf("%s, request %d: body %s", c.desc, i+1, body)
			}
		}
		if asked.Load() != c.asked {
			t.Errorf("%s: WithRefund was called %d times, want %d", c.desc, asked.Load(), c.asked)
		}
	}
}

// Keys of equal length alternate on connections that are kept alive, and each has its quota, whatever comes at the same
// time. If a framework reuses the memory of a request and a key still points there, one key turns into another.
func identities(t *testing.T, serve Serve) {
	const connections, rounds, quota = 64, 12, 100
	seen := map[string]int{}
	var kept []string
	var mu sync.Mutex
	l := limiterFor(t, core.NewMemoryStore(), core.PerHour(quota), core.ByHeader("X-API-Key", core.Unverified),
		core.WithObserver(func(_ context.Context, e core.Event) {
			mu.Lock()
			defer mu.Unlock()
			kept = append(kept, e.Key)
		}))
	admitted := map[string]int{}
	send := serve(t, func() string { return text }, l)
	var wg sync.WaitGroup
	for i := range connections {
		wg.Go(func() {
			for round := range rounds {
				key := fmt.Sprintf("key-%c", 'A'+(i+round)%6)
				r := newRequest(t, "GET")
				r.Header.Set("X-Api-Key", key)
				if send(r).StatusCode == http.StatusOK {
					mu.Lock()
					admitted[key]++
					mu.Unlock()
				}
			}
		})
	}
	wg.Wait()
	for _, key := range kept {
		seen[key]++
	}
	for i := range 6 {
		key := fmt.Sprintf("key-%c", 'A'+i)
		if admitted[key] != quota || seen[key] != connections*rounds/6 {
			t.Errorf("%s: %d admitted, %d observed; want %d, %d",
				key, admitted[key], seen[key], quota, connections*rounds/6)
		}
	}
	if len(seen) != 6 {
		t.Errorf("the observer saw %d identities, want 6: %v", len(seen), seen)
	}
}
