package coretest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sashlimit/sash/core"
)

// AdapterConfig says how to serve with the adapter under test.
type AdapterConfig struct {
	Serve Serve
	HTTP2 Serve // the same over HTTP/2, for frameworks that have it
}

// Adapter runs everything that an adapter must do: the same status, header
// fields and bytes, whatever the framework.
func Adapter(t *testing.T, c AdapterConfig) {
	for _, test := range []struct {
		name string
		f    func(*testing.T, Serve)
	}{
		{"Answers", answers},
		{"HeaderStyles", headerStyles},
		{"SameLimiterTwice", sameLimiterTwice},
		{"TwoLimiters", twoLimiters},
		{"ConcurrentExactly", requestsExactly},
		{"PanicsLeaveNoTrace", panicsLeaveNoTrace},
		{"Identities", identities},
		{"Spoofing", func(t *testing.T, serve Serve) { Spoofing(t, serve, core.NewMemoryStore()) }},
	} {
		t.Run(test.name, func(t *testing.T) { test.f(t, c.Serve) })
		if c.HTTP2 != nil {
			t.Run("HTTP2/"+test.name, func(t *testing.T) { test.f(t, c.HTTP2) })
		}
	}
	t.Run("Headers", func(t *testing.T) {
		Headers(t, StoreConfig{New: func(*testing.T) (core.Store, func(time.Duration)) {
			store := new(FakeStore)
			return store, store.Advance
		}}, c.Serve)
	})
}

const (
	problemBase = "https://iana.org/assignments/http-problem-types#"
	text        = "served"
	policyField = `"3-per-10s";q=3;w=10`
	noKeyBody   = `{"type":"about:blank","title":"Bad Request","status":400,"detail":"The request does not say whose quota it draws from."}`
	brokenBody  = `{"type":"about:blank","title":"Internal Server Error","status":500}`
	storeBody   = `{"type":"` + problemBase + `temporary-reduced-capacity","title":"Temporary Reduced Capacity","status":503,"detail":"Try again in 1 second."}`
	deniedBody  = `{"type":"` + problemBase + `quota-exceeded","title":"Quota Exceeded","status":429,"detail":"Try again in 10 seconds.","violated-policies":["3-per-10s"]}`
	neverBody   = `{"type":"` + problemBase + `quota-exceeded","title":"Quota Exceeded","status":429,"detail":"This request costs more than the whole quota, so it can never pass.","violated-policies":["3-per-10s"]}`
)

var three = core.Limit{Quota: 3, Window: 10 * time.Second}

type fields = map[string]string

// problem is the header fields of a refusal, with those that come on top.
func problem(more fields) fields {
	all := fields{"Content-Type": core.ProblemType}
	maps.Copy(all, more)
	return all
}

func denied(rateLimit, retry string) fields {
	f := problem(fields{"RateLimit-Policy": policyField, "RateLimit": rateLimit, "Cache-Control": "no-store"})
	if retry != "" {
		f["Retry-After"] = retry
	}
	return f
}

func allowed(left int) fields {
	return fields{"RateLimit-Policy": policyField, "RateLimit": fmt.Sprintf(`"3-per-10s";r=%d;t=10`, left)}
}

// answers is the table of what clients see.
func answers(t *testing.T, serve Serve) {
	boom := errors.New("boom at 10.0.0.1:6379")
	type want struct {
		status int
		header fields
		body   string
		ran    bool
	}
	served := func(left int) want { return want{200, allowed(left), text, true} }
	full := want{429, denied(`"3-per-10s";r=0;t=10`, "10"), deniedBody, false}
	by := func(k core.Key) *core.Key { return &k }
	broken := want{500, problem(nil), brokenBody, false}
	for _, c := range []struct {
		desc   string
		policy core.Policy
		key    *core.Key
		opts   []core.Option
		method string
		fail   error
		want   []want // of one request after the other
	}{
		{desc: "allowed, then denied", want: []want{served(2), served(1), served(0), full, full}},
		{desc: "OPTIONS counts", method: "OPTIONS", want: []want{served(2), served(1), served(0), full}},
		{desc: "POST counts", method: "POST", want: []want{served(2), served(1), served(0), full}},
		{desc: "HEAD counts", method: "HEAD", want: []want{{200, allowed(2), "", true}, {200, allowed(1), "", true}, {200, allowed(0), "", true}, {429, full.header, "", false}}},
		{desc: "no key", key: by(core.ByHeader("X-Missing", core.Unverified)), want: []want{{400, problem(nil), noKeyBody, false}, {400, problem(nil), noKeyBody, false}}},
		{desc: "no such value", key: by(core.ByValue("missing")), want: []want{{400, problem(nil), noKeyBody, false}}},
		{desc: "store error", fail: boom, want: []want{{503, problem(fields{"Retry-After": "1"}), storeBody, false}}},
		{desc: "key callback fails", key: by(core.By(func(context.Context) (string, error) { return "", boom })), want: []want{broken}},
		{desc: "key callback panics", key: by(core.By(func(context.Context) (string, error) { panic(boom) })), want: []want{broken, broken}},
		{desc: "key callback panics with an error", key: by(core.By(func(context.Context) (string, error) { panic(io.ErrUnexpectedEOF) })), want: []want{broken, broken}},
		{desc: "skip callback panics", opts: []core.Option{core.WithSkip(func(context.Context) bool { panic("boom") })}, want: []want{broken}},
		{desc: "cost callback panics", opts: []core.Option{core.WithCost(func(context.Context) int { panic("boom") })}, want: []want{broken}},
		{desc: "observer panics", opts: []core.Option{core.WithObserver(func(context.Context, core.Event) { panic("boom") })}, want: []want{broken}},
		{desc: "policy callback panics", policy: core.LimitBy(func(context.Context) core.Limits { panic("boom") }), want: []want{broken}},
		{desc: "skip", opts: []core.Option{core.WithSkip(func(context.Context) bool { return true })}, want: []want{{200, nil, text, true}, {200, nil, text, true}}},
		{desc: "cost 2 of 3", opts: []core.Option{core.WithCost(func(context.Context) int { return 2 })}, want: []want{
			served(1), {429, denied(`"3-per-10s";r=1;t=10`, "10"), deniedBody, false},
		}},
		{desc: "cost 4 of 3", opts: []core.Option{core.WithCost(func(context.Context) int { return 4 })}, want: []want{
			{429, denied(`"3-per-10s";r=3`, ""), neverBody, false},
		}},
		{desc: "cost 0", opts: []core.Option{core.WithCost(func(context.Context) int { return 0 })}, want: []want{broken}},
		{desc: "limits by request", policy: core.LimitBy(func(context.Context) core.Limits { return core.Limits{three} }), want: []want{served(2), served(1), served(0), full}},
		{desc: "no limits by request", policy: core.LimitBy(func(context.Context) core.Limits { return nil }), want: []want{broken}},
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
			l, err := core.New(policy, key, append(c.opts, core.WithStore(store))...)
			if err != nil {
				t.Fatal(err)
			}
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
					t.Errorf("request %d: status %d, body %s, handler ran %v; want %d, %s, %v", i+1, r.StatusCode, body, ran, want.status, want.body, want.ran)
				}
				checkFields(t, fmt.Sprintf("request %d", i+1), r, want.header)
			}
		})
	}
}

func newRequest(t *testing.T, method string) *http.Request {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, "http://sash.example/", nil)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// checkFields compares all fields but those that a server adds by itself. The
// type of what the handler wrote is the framework's business.
func checkFields(t *testing.T, desc string, r *http.Response, want fields) {
	t.Helper()
	got := r.Header.Clone()
	for _, name := range []string{"Date", "Content-Length", "Connection", "Transfer-Encoding"} {
		got.Del(name)
	}
	if r.StatusCode == http.StatusOK {
		got.Del("Content-Type")
	}
	expected := http.Header{}
	for name, value := range want {
		expected.Set(name, value)
	}
	if !maps.EqualFunc(got, expected, slices.Equal) {
		t.Errorf("%s: header fields\ngot  %v\nwant %v", desc, got, expected)
	}
}

func headerStyles(t *testing.T, serve Serve) {
	legacy := func(left, reset string) fields {
		return fields{"X-RateLimit-Limit": "3", "X-RateLimit-Remaining": left, "X-RateLimit-Reset": reset}
	}
	both := allowed(2)
	maps.Copy(both, legacy("2", "10"))
	for _, c := range []struct {
		style  core.Headers
		first  fields
		denied fields
	}{
		{core.HeadersDraft, allowed(2), denied(`"3-per-10s";r=0;t=10`, "10")},
		{core.HeadersLegacy, legacy("2", "10"), problem(fields{"Retry-After": "10", "Cache-Control": "no-store", "X-RateLimit-Limit": "3", "X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "10"})},
		{core.HeadersNone, nil, problem(fields{"Retry-After": "10", "Cache-Control": "no-store"})},
		{core.HeadersBoth, both, nil},
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

func limiterFor(t *testing.T, store core.Store, p core.Policy, k core.Key, opts ...core.Option) *core.Limiter {
	t.Helper()
	l, err := core.New(p, k, append(opts, core.WithStore(store))...)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// Mounted on the router and on a group, a limiter counts a request once.
func sameLimiterTwice(t *testing.T, serve Serve) {
	l := limiterFor(t, new(FakeStore), three, core.ByIP())
	send := serve(t, func() string { return text }, l, l, l)
	for left := 2; left >= 0; left-- {
		checkFields(t, fmt.Sprintf("%d left", left), send(newRequest(t, "GET")), allowed(left))
	}
	if r := send(newRequest(t, "GET")); r.StatusCode != http.StatusTooManyRequests {
		t.Errorf("status %d after the quota is used up", r.StatusCode)
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

// Many at once, over HTTP/2 as streams of one connection, are admitted exactly.
func requestsExactly(t *testing.T, serve Serve) {
	const requests, quota = 250, 40
	var ran atomic.Int64
	l := limiterFor(t, core.NewMemoryStore(), core.PerHour(quota), core.ByIP())
	send := serve(t, func() string { ran.Add(1); return text }, l)
	var wg sync.WaitGroup
	var ok atomic.Int64
	for range requests {
		wg.Go(func() {
			if send(newRequest(t, "GET")).StatusCode == http.StatusOK {
				ok.Add(1)
			}
		})
	}
	wg.Wait()
	if ran.Load() != quota || ok.Load() != quota {
		t.Errorf("the handler ran %d times and %d saw 200, want %d", ran.Load(), ok.Load(), quota)
	}
}

// After a panic nothing is held: neither a lock nor a place.
func panicsLeaveNoTrace(t *testing.T, serve Serve) {
	var panicking atomic.Bool
	l := limiterFor(t, new(FakeStore), three, core.By(func(context.Context) (string, error) {
		if panicking.Load() {
			panic("boom")
		}
		return "k", nil
	}))
	send := serve(t, func() string { return text }, l)
	panicking.Store(true)
	for range 20 {
		if r := send(newRequest(t, "GET")); r.StatusCode != http.StatusInternalServerError {
			t.Errorf("status %d for a panic", r.StatusCode)
		}
	}
	panicking.Store(false)
	for left := 2; left >= 0; left-- {
		checkFields(t, fmt.Sprintf("%d left", left), send(newRequest(t, "GET")), allowed(left))
	}
}

// Alternating keys of equal length on connections that are kept alive: where a
// framework uses a request's memory again, one would turn into another.
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
			t.Errorf("%s: %d admitted, %d observed; want %d, %d", key, admitted[key], seen[key], quota, connections*rounds/6)
		}
	}
	if len(seen) != 6 {
		t.Errorf("the observer saw %d identities, want 6: %v", len(seen), seen)
	}
}
