package core_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/coretest"
	"github.com/sashlimit/sash/nethttp"
)

// At most two exports at the same time for each customer, and ten an hour. A slot is given back by Release.
func ExampleInFlight() {
	limiter, err := core.New(core.Limits{core.InFlight(2), core.PerHour(10)}, core.ByText())
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx := context.Background()
	first, _ := limiter.Allow(ctx, "customer 7")
	second, _ := limiter.Allow(ctx, "customer 7")
	third, _ := limiter.Allow(ctx, "customer 7")
	fmt.Println(first.Allowed, second.Allowed, third.Allowed, third.Violated)

	if err := first.Release(ctx); err != nil {
		fmt.Println(err)
	}
	third, _ = limiter.Allow(ctx, "customer 7")
	fmt.Println(third.Allowed)
	// Output:
	// true true false [2-in-flight]
	// true
}

// A limit for each user and one for his whole organisation, in one decision: if one denies, none is charged.
func ExampleLimit_By() {
	organisation := core.ByHeader("X-Organisation", core.Unverified)
	mw := nethttp.New(core.Limits{core.PerHour(2), core.PerHour(3).By(organisation)},
		core.ByHeader("X-Api-Key", core.Unverified))
	handler := mw(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	for _, user := range []string{"ann", "ann", "ann", "bob", "cleo"} {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.Header.Set("X-Api-Key", user)
		r.Header.Set("X-Organisation", "acme")
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		fmt.Println(user, w.Code)
	}
	// Output:
	// ann 200
	// ann 200
	// ann 429
	// bob 200
	// cleo 429
}

// A quota that begins again on the first of each month, at midnight in Berlin.
func ExamplePerMonth() {
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		fmt.Println(err)
		return
	}
	limiter, err := core.New(core.PerMonth(10_000).In(berlin), core.ByText())
	if err != nil {
		fmt.Println(err)
		return
	}
	decision, err := limiter.AllowN(context.Background(), "customer 7", 9_999)
	fmt.Println(decision.Allowed, decision.Remaining, err)
	// Output: true 1 <nil>
}

// Fifty requests at once, and then ten a minute.
func ExampleTokenBucket() {
	limiter, err := core.New(core.TokenBucket(core.PerMinute(10), 50), core.ByText())
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx := context.Background()
	burst, _ := limiter.AllowN(ctx, "customer 7", 50)
	next, _ := limiter.Allow(ctx, "customer 7")
	fmt.Println(burst.Allowed, next.Allowed, next.RetryAfter > 0, next.RetryAfter <= time.Minute/10)
	// Output: true false true true
}

// Only failed logins count: a login that succeeds is given back.
func ExampleWithRefund() {
	succeeded := core.WithRefund(func(_ *http.Request, status int) bool { return status < 400 })
	mw := nethttp.New(core.PerHour(2), core.ByIP(), succeeded)
	handler := mw(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("password") != "correct" {
			w.WriteHeader(http.StatusUnauthorized)
		}
	}))
	for _, password := range []string{"correct", "a", "correct", "b", "correct"} {
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/login?password="+password, nil))
		fmt.Println(password, w.Code)
	}
	// Output:
	// correct 200
	// a 401
	// correct 200
	// b 401
	// correct 429
}

// Three denials within a minute ban the client for an hour, a second time for two hours, and so on.
func ExampleWithBan() {
	limiter, err := core.New(core.PerMinute(1), core.ByText(), core.WithBan(3, time.Minute, time.Hour))
	if err != nil {
		fmt.Println(err)
		return
	}
	for range 5 {
		decision, err := limiter.Allow(context.Background(), "customer 7")
		fmt.Println(decision.Allowed, decision.Banned, err)
	}
	// Output:
	// true false <nil>
	// false false <nil>
	// false false <nil>
	// false true <nil>
	// false true <nil>
}

// Each decision is an event, for a log or for metrics of your own.
func ExampleWithObserver() {
	observer := core.WithObserver(func(_ context.Context, e core.Event) {
		fmt.Println(e.Policy, e.Outcome, e.Source, e.Decision.Remaining)
	})
	limiter, err := core.New(core.PerHour(1), core.ByText(), core.WithName("exports"), observer)
	if err != nil {
		fmt.Println(err)
		return
	}
	for range 2 {
		if _, err := limiter.Allow(context.Background(), "customer 7"); err != nil {
			fmt.Println(err)
		}
	}
	// Output:
	// exports allowed memory 0
	// exports denied memory 0
}

// While the store does not answer, requests are refused: with an error, and by middleware with 503.
func ExampleWithFailure() {
	store := new(coretest.FakeStore)
	store.Fail(errors.New("connection refused"))
	mw := nethttp.New(core.PerMinute(100), core.ByIP(), core.WithStore(store), core.WithFailure(core.FailClosed))
	ask(mw, http.MethodGet, "/", "")
	// Output: GET / 503 not counted
}

// Behind a load balancer the client's address is in X-Forwarded-For, which is believed only from trusted proxies.
func ExampleByForwardedIP() {
	mw := nethttp.New(core.PerMinute(1), core.ByForwardedIP("10.0.0.0/8"))
	handler := mw(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	for _, from := range []struct{ peer, forwarded string }{
		{"10.0.0.1:1234", "203.0.113.7"},
		{"10.0.0.2:1234", "203.0.113.7"},
		{"10.0.0.1:1234", "203.0.113.8"},
		{"198.51.100.1:1234", "203.0.113.9"}, // a client that claims to be a proxy
		{"198.51.100.1:1234", "203.0.113.10"},
	} {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.RemoteAddr = from.peer
		r.Header.Set("X-Forwarded-For", from.forwarded)
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		fmt.Println(from.peer, from.forwarded, w.Code)
	}
	// Output:
	// 10.0.0.1:1234 203.0.113.7 200
	// 10.0.0.2:1234 203.0.113.7 429
	// 10.0.0.1:1234 203.0.113.8 200
	// 198.51.100.1:1234 203.0.113.9 200
	// 198.51.100.1:1234 203.0.113.10 429
}

// A quota for each user of each tenant: both headers together are the key.
func ExampleJoin() {
	key := core.Join(core.ByHeader("X-Tenant", core.Unverified), core.ByHeader("X-User", core.Unverified))
	handler := nethttp.New(core.PerHour(1), key)(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	for _, who := range [][2]string{{"acme", "1"}, {"acme", "2"}, {"zeta", "1"}, {"acme", "1"}} {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.Header.Set("X-Tenant", who[0])
		r.Header.Set("X-User", who[1])
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		fmt.Println(who, w.Code)
	}
	// Output:
	// [acme 1] 200
	// [acme 2] 200
	// [zeta 1] 200
	// [acme 1] 429
}

// The cost is not known before the work is done: the most is reserved, and what it has cost is settled.
func ExampleDecision_Settle() {
	limiter, err := core.New(core.PerHour(1000), core.ByText())
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx := context.Background()
	decision, err := limiter.AllowN(ctx, "customer 7", 800)
	if err != nil || !decision.Allowed {
		fmt.Println("denied", err)
		return
	}
	fmt.Println("reserved:", decision.Remaining, "left")
	if err := decision.Settle(ctx, 120); err != nil {
		fmt.Println(err)
	}
	now, err := limiter.Peek(ctx, "customer 7")
	fmt.Println("settled:", now.Remaining, "left", err)
	// Output:
	// reserved: 200 left
	// settled: 880 left <nil>
}

// Support clears what a customer has used.
func ExampleLimiter_Reset() {
	limiter, err := core.New(core.PerDay(1), core.ByText())
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx := context.Background()
	for range 2 {
		decision, err := limiter.Allow(ctx, "customer 7")
		fmt.Println(decision.Allowed, err)
	}
	if err := limiter.Reset(ctx, "customer 7"); err != nil {
		fmt.Println(err)
	}
	decision, err := limiter.Allow(ctx, "customer 7")
	fmt.Println(decision.Allowed, err)
	// Output:
	// true <nil>
	// false <nil>
	// true <nil>
}

func ExampleLimiter_Stats() {
	limiter, err := core.New(core.PerDay(1), core.ByText())
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, customer := range []string{"customer 7", "customer 8", "customer 7"} {
		if _, err := limiter.Allow(context.Background(), customer); err != nil {
			fmt.Println(err)
		}
	}
	stats := limiter.Stats()
	fmt.Println(stats.Policy, stats.Keys, stats.Shared)
	// Output: 1-per-day 2 0
}

// The handler sees the decision of the limiter before it.
func ExampleDecisionFrom() {
	mw := nethttp.New(core.PerHour(5), core.ByIP(), core.WithDecisionInContext())
	handler := mw(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if decision, ok := core.DecisionFrom(r.Context()); ok {
			fmt.Println(decision.Remaining, "requests left")
		}
	}))
	handler.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", nil))
	// Output: 4 requests left
}
