package core_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/nethttp"
)

// ask sends a request through mw, and prints the status and what the RateLimit field says is left.
func ask(mw func(http.Handler) http.Handler, method, path, apiKey string) {
	r := httptest.NewRequest(method, path, nil)
	if apiKey != "" {
		r.Header.Set("X-Api-Key", apiKey)
	}
	w := httptest.NewRecorder()
	mw(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})).ServeHTTP(w, r)
	left := "not counted"
	if field := w.Header().Get("RateLimit"); field != "" {
		var name string
		var n int
		fmt.Sscanf(field, "%q;r=%d", &name, &n)
		left = fmt.Sprintf("%d left of %s", n, name)
	}
	fmt.Println(method, path, w.Code, left)
}

// Three e-mails an hour to each customer, without a web server.
func ExampleNew() {
	limiter, err := core.New(core.PerHour(3), core.ByText())
	if err != nil {
		fmt.Println(err)
		return
	}
	for range 4 {
		decision, err := limiter.Allow(context.Background(), "customer 7")
		if err != nil { // the store could not answer
			fmt.Println(err)
			return
		}
		fmt.Println(decision.Allowed, decision.Remaining, decision.RetryAfter.Round(time.Hour))
	}
	// Output:
	// true 2 0s
	// true 1 0s
	// true 0 0s
	// false 0 1h0m0s
}

// Every mistake is named at once.
func ExampleNew_mistakes() {
	_, err := core.New(core.PerHour(0), core.ByHeader("API Key", core.Unverified))
	fmt.Println(err)
	// Output:
	// sash: ByHeader("API Key"): this is not the name of a header field; use letters, digits and '-', as in "X-API-Key"
	// sash: limits(0/hour): the quota is out of range; choose 1 to 1000000000
}

// Both limits hold at once. What one of them denies the other is not charged for.
func ExampleLimits() {
	limiter, err := core.New(core.Limits{core.PerHour(2), core.PerDay(3)}, core.ByText())
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx := context.Background()
	for _, cost := range []int{2, 1, 3} {
		decision, err := limiter.AllowN(ctx, "customer 7", cost)
		fmt.Println(cost, decision.Allowed, decision.Violated, errors.Is(err, core.ErrCostExceedsQuota))
	}
	decision, err := limiter.Peek(ctx, "customer 7")
	fmt.Println("used of the day:", decision.Used, err)
	// Output:
	// 2 true [] false
	// 1 false [2-per-hour] false
	// 3 false [2-per-hour] true
	// used of the day: 2 <nil>
}

func ExampleParseLimit() {
	for _, text := range []string{"100/minute", "10 per 5m", "20 per 2 hours", "fast"} {
		limit, err := core.ParseLimit(text)
		if err != nil {
			fmt.Println(err)
			continue
		}
		fmt.Println(limit.Quota, limit.Window, limit)
	}
	// Output:
	// 100 1m0s 100/minute
	// 10 5m0s 10/5m
	// 20 2h0m0s 20/2h
	// sash: ParseLimit("fast"): there is no window; write a quota and a window, as in "100/minute" or "10 per 5m"
}

// A customer has a quota wherever the requests come from; who is none has that of the address.
func ExampleFirst() {
	customers := map[string]string{"key-1": "ann", "key-2": "ann", "key-3": "bob"}
	byAPIKey := core.ByHeader("X-API-Key", func(_ context.Context, key string) (string, error) {
		customer, ok := customers[key]
		if !ok {
			return "", core.ErrNoKey
		}
		return customer, nil
	})
	mw := nethttp.New(core.PerHour(2), core.First(byAPIKey, core.ByIP()))
	for _, key := range []string{"key-1", "key-2", "key-3", "", "made up", "made up too", "key-1"} {
		ask(mw, http.MethodGet, "/", key)
	}
	// Output:
	// GET / 200 1 left of 2-per-hour
	// GET / 200 0 left of 2-per-hour
	// GET / 200 1 left of 2-per-hour
	// GET / 200 1 left of 2-per-hour
	// GET / 200 0 left of 2-per-hour
	// GET / 429 0 left of 2-per-hour
	// GET / 429 0 left of 2-per-hour
}

// Without First, a request that has no key is refused: it never shares a quota with others.
func ExampleByHeader() {
	mw := nethttp.New(core.PerHour(2), core.ByHeader("X-API-Key", func(_ context.Context, key string) (string, error) {
		if key != "key-1" {
			return "", core.ErrNoKey
		}
		return "ann", nil
	}))
	ask(mw, http.MethodGet, "/", "key-1")
	ask(mw, http.MethodGet, "/", "made up")
	ask(mw, http.MethodGet, "/", "")
	// Output:
	// GET / 200 1 left of 2-per-hour
	// GET / 400 not counted
	// GET / 400 not counted
}

// A customer who moves to a larger plan keeps what he has used, and gains the difference at once.
func ExampleLimitBy() {
	plan := "free"
	plans := map[string]core.Limits{
		"free": {core.PerHour(2)},
		"pro":  {core.PerHour(100)},
	}
	mw := nethttp.New(
		core.LimitBy(func(*http.Request) core.Limits { return plans[plan] }),
		core.ByHeader("X-API-Key", core.Unverified),
	)
	for range 3 {
		ask(mw, http.MethodGet, "/", "ann")
	}
	plan = "pro"
	ask(mw, http.MethodGet, "/", "ann")
	// Output:
	// GET / 200 1 left of 2-per-hour
	// GET / 200 0 left of 2-per-hour
	// GET / 429 0 left of 2-per-hour
	// GET / 200 97 left of 100-per-hour
}

func ExampleWithCost() {
	mw := nethttp.New(core.PerHour(10), core.ByIP(), core.WithCost(func(r *http.Request) int {
		if r.Method == http.MethodPost {
			return 5
		}
		return 1
	}))
	ask(mw, http.MethodGet, "/", "")
	ask(mw, http.MethodPost, "/", "")
	ask(mw, http.MethodPost, "/", "")
	ask(mw, http.MethodGet, "/", "")
	// Output:
	// GET / 200 9 left of 10-per-hour
	// POST / 200 4 left of 10-per-hour
	// POST / 429 4 left of 10-per-hour
	// GET / 200 3 left of 10-per-hour
}

func ExampleWithSkip() {
	mw := nethttp.New(core.PerHour(1), core.ByIP(), core.WithSkip(func(r *http.Request) bool {
		return r.URL.Path == "/healthz"
	}))
	ask(mw, http.MethodGet, "/", "")
	ask(mw, http.MethodGet, "/", "")
	ask(mw, http.MethodGet, "/healthz", "")
	// Output:
	// GET / 200 0 left of 1-per-hour
	// GET / 429 0 left of 1-per-hour
	// GET /healthz 200 not counted
}

// A denial becomes an error where a function returns one, and the decision
// comes back out of it.
func ExampleDecision_Err() {
	limiter, err := core.New(core.PerHour(1), core.ByText(), core.WithName("newsletter"))
	if err != nil {
		fmt.Println(err)
		return
	}
	send := func(to string) error {
		decision, err := limiter.Allow(context.Background(), to)
		if err != nil {
			return err
		}
		return decision.Err() // nil when it is allowed
	}
	fmt.Println(send("ann"))
	err = send("ann")
	var limited *core.LimitedError
	if errors.As(err, &limited) {
		d := limited.Decision
		fmt.Println(d.Policy, d.Violated, d.RetryAfter.Round(time.Hour))
	}
	// Output:
	// <nil>
	// newsletter [1-per-hour] 1h0m0s
}

// A job waits for its turn. If its context ends before that, Wait fails at once and tells how long it would have been.
func ExampleLimiter_Wait() {
	limiter, err := core.New(core.PerHour(2), core.ByText())
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for range 3 {
		decision, err := limiter.Wait(ctx, "mail server")
		late := errors.Is(err, context.DeadlineExceeded)
		fmt.Println(decision.Allowed, decision.RetryAfter.Round(time.Hour), late, ctx.Err())
	}
	// Output:
	// true 0s false <nil>
	// true 0s false <nil>
	// false 1h0m0s true <nil>
}
