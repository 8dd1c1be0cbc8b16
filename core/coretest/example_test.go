package coretest_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/coretest"
)

// A test of your own proves that no window held more than its quota.
func ExampleVerify() { //nolint:testableexamples // its test needs a *testing.T
	test := func(t *testing.T) {
		limits := core.Limits{core.PerSecond(5), core.PerMinute(20)}
		limiter, err := core.New(limits, core.ByText())
		if err != nil {
			t.Fatal(err)
		}
		for range 100 {
			if _, err := limiter.Allow(t.Context(), "customer 7"); err != nil {
				t.Fatal(err)
			}
		}
		entries, err := limiter.Log(t.Context(), "customer 7")
		if err != nil {
			t.Fatal(err)
		}
		coretest.Verify(t, entries, limits)
	}
	_ = test // go test runs it if it is a function Test...
}

// A minute passes, and then the store fails.
func ExampleFakeStore() {
	store := new(coretest.FakeStore)
	limiter, err := core.New(core.PerMinute(1), core.ByText(), core.WithStore(store), core.WithDenyCache(0),
		core.WithFailure(core.FailClosed))
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx := context.Background()
	for range 2 {
		decision, err := limiter.Allow(ctx, "customer 7")
		fmt.Println(decision.Allowed, decision.RetryAfter, err)
	}
	store.Advance(time.Minute)
	decision, err := limiter.Allow(ctx, "customer 7")
	fmt.Println(decision.Allowed, err)

	refused := errors.New("connection refused")
	store.Fail(refused)
	_, err = limiter.Allow(ctx, "customer 7")
	fmt.Println(errors.Is(err, refused), store.Takes())
	// Output:
	// true 0s <nil>
	// false 1m0s <nil>
	// true <nil>
	// true 3
}
