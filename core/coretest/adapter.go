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
	"github.com/sashlimit/sash/core/adapter"
)

// AdapterConfig says how to serve with the adapter under test.
type AdapterConfig struct {
	Serve Serve
	HTTP2 Serve // the same over HTTP/2, for frameworks that have it

	// Handler mounts limiters as Serve does in front of any handler. It is for frameworks on net/http, whose adapters
	// must tell the status that was sent also where the client leaves, the handler panics or takes over the connection.
	Handler func(next http.Handler, limiters ...*core.Limiter) http.Handler
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
		{"Lists", lists},
		{"Bans", bans},
		{"CountDenied", countDenied},
		{"Refunds", refunds},
		{"Identities", identities},
		{"Spoofing", func(t *testing.T, serve Serve) { Spoofing(t, serve, core.NewMemoryStore()) }},
	} {
		t.Run(test.name, func(t *testing.T) { test.f(t, c.Serve) })
		if c.HTTP2 != nil {
			t.Run("HTTP2/"+test.name, func(t *testing.T) { test.f(t, c.HTTP2) })
		}
	}
	if c.Handler != nil {
		t.Run("Responses", func(t *testing.T) { responses(t, c.Handler) })
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
	forbidden   = `{"type":"about:blank","title":"Forbidden","status":403}`
	storeBody   = `{"type":"` + problemBase + `temporary-reduced-capacity","title":"Temporary Reduced Capacity","status":503,"detail":"Try again in 1 second."}`
	deniedBody  = `{"type":"` + problemBase + `quota-exceeded","title":"Quota Exceeded","status":429,"detail":"Try again in 10 seconds.","violated-policies":["3-per-10s"]}`
	bannedBody  = `{"type":"` + problemBase + `abnormal-usage-detected","title":"Abnormal Usage Detected","status":429,"detail":"Try again in %d second%s."}`
	neverBody   = `{"type":"` + problemBase + `quota-exceeded","title":"Quota Exceeded","status":429,"detail":"This request costs more than the whole quota, so it can never pass.","violated-policies":["3-per-10s"]}`
)

// loopback is where the suite's clients come from.
var loopback = []string{"127.0.0.0/8", "::1"}

var three = core.Limit{Quota: 3, Window: 10 * time.Second}

type fields = map[string]string

// problem is the header fields of a refusal, with those that come on top.
func problem(more fields) fields {
	all := fields{"Content-Type": adapter.ProblemType}
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
	refused := want{403, problem(nil), forbidden, false}
	skipped := want{200, nil, text, true}
	allow := core.WithAllowList(core.ByIP(), loopback...)
	deny := core.WithDenyList(core.ByIP(), loopback...)
	failing := core.By(func(context.Context) (string, error) { return "", boom })
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
		{desc: "store error, FailClosed", fail: boom, opts: []core.Option{core.WithFailure(core.FailClosed)}, want: []want{{503, problem(fields{"Retry-After": "1"}), storeBody, false}}},
		{desc: "store error, FailOpen", fail: boom, opts: []core.Option{core.WithFailure(core.FailOpen)}, want: []want{{200, nil, text, true}, {200, nil, text, true}, {200, nil, text, true}, {200, nil, text, true}}},
		{desc: "store error, FailLocal", fail: boom, want: []want{served(2), served(1), served(0), full, full}},
		{desc: "key callback fails", key: by(failing), want: []want{broken}},
		{desc: "key callback panics", key: by(core.By(func(context.Context) (string, error) { panic(boom) })), want: []want{broken, broken}},
		{desc: "key callback panics with an error", key: by(core.By(func(context.Context) (string, error) { panic(io.ErrUnexpectedEOF) })), want: []want{broken, broken}},
		{desc: "skip callback panics", opts: []core.Option{core.WithSkip(func(context.Context) bool { panic("boom") })}, want: []want{broken}},
		{desc: "cost callback panics", opts: []core.Option{core.WithCost(func(context.Context) int { panic("boom") })}, want: []want{broken}},
		{desc: "observer panics", opts: []core.Option{core.WithObserver(func(context.Context, core.Event) { panic("boom") })}, want: []want{broken}},
		{desc: "policy callback panics", policy: core.LimitBy(func(context.Context) core.Limits { panic("boom") }), want: []want{broken}},
		{desc: "skip", opts: []core.Option{core.WithSkip(func(context.Context) bool { return true })}, want: []want{skipped, skipped}},
		{desc: "deny list", opts: []core.Option{deny}, want: []want{refused, refused}},
		{desc: "deny list, HEAD", method: "HEAD", opts: []core.Option{deny}, want: []want{{403, problem(nil), "", false}}},
		{desc: "deny list without a key", key: by(core.ByHeader("X-Missing", core.Unverified)), opts: []core.Option{deny}, want: []want{refused}},
		{desc: "deny list and store error", opts: []core.Option{deny}, fail: boom, want: []want{refused}},
		{desc: "deny list of others", opts: []core.Option{core.WithDenyList(core.ByIP(), "192.0.2.0/24", "2001:db8::/32")}, want: []want{served(2)}},
		{desc: "deny list without its key", opts: []core.Option{core.WithDenyList(core.ByHeader("X-Missing", core.Unverified), "mallory")}, want: []want{served(2)}},
		{desc: "allow list", opts: []core.Option{allow}, want: []want{skipped, skipped, skipped, skipped}},
		{desc: "allow list without a key", key: by(core.ByHeader("X-Missing", core.Unverified)), opts: []core.Option{allow}, want: []want{skipped}},
		{desc: "allow list and store error", opts: []core.Option{allow, core.WithFailure(core.FailClosed)}, fail: boom, want: []want{skipped}},
		{desc: "allow list, then deny list", opts: []core.Option{allow, deny}, want: []want{refused}},
		{desc: "deny list, then allow list", opts: []core.Option{deny, allow}, want: []want{refused}},
		{desc: "key of a list fails", opts: []core.Option{core.WithAllowList(failing, "ann")}, want: []want{broken}},
		{desc: "key of a list panics", opts: []core.Option{core.WithDenyList(core.By(func(context.Context) (string, error) { panic(boom) }), "ann")}, want: []want{broken, broken}},
		{desc: "denials count", opts: []core.Option{core.WithCountDenied()}, want: []want{served(2), served(1), served(0), full, full}},
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
	// Every question is to reach the store, whose time is not ours.
	opts = append([]core.Option{core.WithStore(store), core.WithDenyCache(0), core.WithTimeout(time.Minute)}, opts...)
	l, err := core.New(p, k, opts...)
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

// Lists are matched before the store, and by a key of their own.
func lists(t *testing.T, serve Serve) {
	store := new(FakeStore)
	id := core.ByHeader("X-API-Key", core.Unverified)
	l := limiterFor(t, store, three, core.ByIP(), core.WithDenyList(id, "mallory", "eve"), core.WithAllowList(id, "monitor"))
	var ran atomic.Int64
	send := serve(t, func() string { ran.Add(1); return text }, l)
	ask := func(key string, status int, runs int64, takes int, header fields) {
		t.Helper()
		ran.Store(0)
		before := store.Takes()
		r := newRequest(t, "GET")
		r.Header.Set("X-Api-Key", key)
		response := send(r)
		if response.StatusCode != status || ran.Load() != runs || store.Takes()-before != takes {
			t.Errorf("%s: status %d, the handler ran %d times, the store was asked %d times; want %d, %d, %d",
				key, response.StatusCode, ran.Load(), store.Takes()-before, status, runs, takes)
		}
		checkFields(t, key, response, header)
	}
	for range 5 {
		ask("mallory", 403, 0, 0, problem(nil))
		ask("eve", 403, 0, 0, problem(nil))
		ask("monitor", 200, 1, 0, nil)
	}
	for i, key := range []string{"ann", "Monitor", "monitor2"} {
		ask(key, 200, 1, 1, allowed(2-i))
	}
	ask("ann", 429, 0, 1, denied(`"3-per-10s";r=0;t=10`, "10"))
	ask("monitor", 200, 1, 0, nil)
	ask("mallory", 403, 0, 0, problem(nil))
}

// Who is denied too often is told so, and neither what he has left nor when a window ends.
func bans(t *testing.T, serve Serve) {
	store := new(FakeStore)
	l := limiterFor(t, store, three, core.ByIP(), core.WithBan(2, time.Minute, 30*time.Second), core.WithHeaders(core.HeadersBoth))
	ran := false
	send := serve(t, func() string { ran = true; return text }, l)
	ask := func(status int) (*http.Response, string) {
		t.Helper()
		ran = false
		r := send(newRequest(t, "GET"))
		body, _ := io.ReadAll(r.Body)
		if r.StatusCode != status || ran != (status == 200) {
			t.Errorf("status %d, handler ran %v; want %d", r.StatusCode, ran, status)
		}
		return r, string(body)
	}
	banned := func(seconds int) {
		t.Helper()
		plural := "s"
		if seconds == 1 {
			plural = ""
		}
		r, body := ask(429)
		if want := fmt.Sprintf(bannedBody, seconds, plural); body != want {
			t.Errorf("body %s, want %s", body, want)
		}
		checkFields(t, "banned", r, problem(fields{"Retry-After": fmt.Sprint(seconds), "Cache-Control": "no-store"}))
	}
	for range 3 {
		ask(200)
	}
	if _, body := ask(429); body != deniedBody {
		t.Errorf("before the ban: body %s, want %s", body, deniedBody)
	}
	banned(30)
	store.Advance(10 * time.Second) // the window is empty
	banned(20)
	store.Advance(19 * time.Second)
	banned(1)
	store.Advance(time.Second)
	for range 3 {
		ask(200)
	}
	ask(429)
	banned(60) // the second is twice as long
}

// Denials fill the window, so that Retry-After grows while a client keeps trying, and stays exact.
func countDenied(t *testing.T, serve Serve) {
	store := new(FakeStore)
	l := limiterFor(t, store, three, core.ByIP(), core.WithCountDenied())
	send := serve(t, func() string { return text }, l)
	for i, c := range []struct {
		after time.Duration
		want  fields
	}{
		{0, allowed(2)}, {0, allowed(1)}, {0, allowed(0)},
		{4 * time.Second, denied(`"3-per-10s";r=0;t=6`, "6")},
		{0, denied(`"3-per-10s";r=0;t=6`, "6")},
		{0, denied(`"3-per-10s";r=0;t=10`, "10")}, // all three that were admitted have been pushed out
		{6 * time.Second, denied(`"3-per-10s";r=0;t=4`, "4")},
		{0, denied(`"3-per-10s";r=0;t=4`, "4")},
		{0, denied(`"3-per-10s";r=0;t=10`, "10")},
		{9999 * time.Millisecond, denied(`"3-per-10s";r=0;t=1`, "1")},
		{time.Millisecond, fields{"RateLimit-Policy": policyField, "RateLimit": `"3-per-10s";r=1;t=10`}},
	} {
		store.Advance(c.after)
		checkFields(t, fmt.Sprintf("request %d", i+1), send(newRequest(t, "GET")), c.want)
	}
}

// What a request has taken comes back when its final status says so, before the client hears of it.
func refunds(t *testing.T, serve Serve) {
	full := denied(`"3-per-10s";r=0;t=10`, "10")
	for _, c := range []struct {
		desc  string
		back  func(status int) bool
		skip  bool
		asked int64
		want  []fields // of one request after the other
	}{
		{desc: "200", back: func(status int) bool { return status == 200 }, asked: 5, want: []fields{allowed(2), allowed(2), allowed(2), allowed(2), allowed(2)}},
		{desc: "400 and above", back: func(status int) bool { return status >= 400 }, asked: 3, want: []fields{allowed(2), allowed(1), allowed(0), full, full}},
		{desc: "panic", back: func(int) bool { panic("boom") }, asked: 3, want: []fields{allowed(2), allowed(1), allowed(0), full, full}},
		{desc: "skipped", skip: true, want: make([]fields, 5)},
	} {
		var asked atomic.Int64
		l := limiterFor(t, new(FakeStore), three, core.ByIP(),
			core.WithSkip(func(context.Context) bool { return c.skip }),
			core.WithRefund(func(_ context.Context, status int) bool { asked.Add(1); return c.back(status) }))
		send := serve(t, func() string { return text }, l, l) // mounted twice, it counts and asks once
		for i, want := range c.want {
			r := send(newRequest(t, "GET"))
			checkFields(t, fmt.Sprintf("%s, request %d", c.desc, i+1), r, want)
			if body, _ := io.ReadAll(r.Body); r.StatusCode == 200 && string(body) != text {
				t.Errorf("%s, request %d: body %s", c.desc, i+1, body)
			}
		}
		if asked.Load() != c.asked {
			t.Errorf("%s: it was asked %d times, want %d", c.desc, asked.Load(), c.asked)
		}
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
