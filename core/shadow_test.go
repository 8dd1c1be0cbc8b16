package core_test

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"testing"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/event"
	"github.com/sashlimit/sash/core/store"
)

// Limits that are tried out may depend on the request although those in force do not.
func TestShadowChosenPerRequest(t *testing.T) {
	always := core.LimitBy(func(*http.Request) core.Limits { return core.Limits{core.PerHour(100)} })
	for name, policy := range map[string]core.Policy{"fixed": core.PerHour(100), "chosen": always} {
		var would []bool
		l := newLimiterBy(t, policy, core.Global(),
			core.WithShadow(core.LimitBy(func(r *http.Request) core.Limits {
				if r.Header.Get("Plan") == "pro" {
					return core.Limits{core.PerHour(20)}
				}
				return core.Limits{core.PerHour(2)}
			})),
			core.WithObserver(func(_ context.Context, e core.Event) { would = append(would, e.Shadow.Allowed) }))
		for _, plan := range []string{"", "", "", "pro", ""} {
			d := checkOnce(t, l, from("192.0.2.1:1", "Plan", plan), true)
			d.Serve(func() int { return 200 })
		}
		if want := []bool{true, true, false, true, false}; !slices.Equal(would, want) {
			t.Errorf("%s: the shadow would allow %v, want %v", name, would, want)
		}
	}
}

// A request whose key for a limit that is tried out cannot be read is decided without that limit, and so is a call for
// limits that are chosen by requests.
func TestShadowThatCannotBeAsked(t *testing.T) {
	var failed []error
	byOrg := core.ByHeader("Org", func(_ context.Context, name string) (string, error) {
		if name == "broken" {
			return "", errors.New("no database")
		}
		return name, nil
	})
	chosen := core.LimitBy(func(*http.Request) core.Limits { return core.Limits{core.PerHour(1).By(byOrg)} })
	for name, shadow := range map[string]core.Policy{
		"fixed": core.Limits{core.PerHour(1).By(byOrg), core.PerDay(1)}, "chosen": chosen,
	} {
		failed = nil
		l := newLimiterBy(t, core.PerHour(8), core.ByIP(), core.WithShadow(shadow), core.WithOverrides(),
			core.WithObserver(func(_ context.Context, e core.Event) {
				if e.Outcome == event.ShadowFailed {
					failed = append(failed, e.Err)
				}
			}))
		for _, quota := range []int{8, 9} {
			for _, org := range []string{"acme", "", "broken"} {
				if d, err := l.Check(from("192.0.2.1:1", "Org", org)); err != nil || !d.Allowed {
					t.Errorf("%s, %q: %v, %v", name, org, d, err)
				}
			}
			if d, err := l.Allow(t.Context(), "192.0.2.1"); err != nil || !d.Allowed {
				t.Errorf("%s, without a request: %v, %v", name, d, err)
			}
			overrideIn(t, l, "192.0.2.1", core.Override{Limits: core.Limits{core.PerHour(quota + 1)}})
		}
		if d, err := l.Peek(t.Context(), "192.0.2.1"); err != nil || d.Used != 8 || len(failed) != 2 {
			t.Errorf("%s: %d used, %v; %v failed", name, d.Used, err, failed)
		}
	}
}

// A limit of requests may be tried out where those in force count another unit: costs without a name stay of that.
func TestShadowOfRequests(t *testing.T) {
	ctx, key := t.Context(), "192.0.2.1"
	for name, s := range map[string]core.Store{
		"memory": core.NewMemoryStore(), "another": struct{ store.Full }{core.NewMemoryStore()},
	} {
		var would []bool
		l := newLimiterBy(t, core.PerHour(40).Of("tokens"), core.ByIP(), core.WithShadow(core.PerHour(4)),
			core.WithStore(s), core.WithCostOf("tokens", func(*http.Request) int { return 7 }),
			core.WithObserver(func(_ context.Context, e core.Event) { would = append(would, e.Shadow.Allowed) }))
		for i, ask := range []func() (core.Decision, error){
			func() (core.Decision, error) { return l.Check(from(key + ":1")) },
			func() (core.Decision, error) { return l.AllowCosts(ctx, key, core.Costs{"tokens": 7}) },
			func() (core.Decision, error) { return l.WaitN(ctx, key, 7) },
			func() (core.Decision, error) { return l.AllowAtMost(ctx, key, 7) }, // one request, as of all of them
			func() (core.Decision, error) { return l.AllowN(ctx, key, 1) },
			func() (core.Decision, error) { return l.Peek(ctx, key) },
		} {
			d, err := ask()
			if i == 4 {
				err = errors.Join(err, d.Settle(ctx, 2))
			}
			if err != nil || !d.Allowed || d.Used != 7*i-i/5*5 {
				t.Errorf("%s, call %d: %v, %v", name, i, d, err)
			}
		}
		if want := []bool{true, true, true, true, false, false}; !slices.Equal(would, want) {
			t.Errorf("%s: the shadow would allow %v, want %v", name, would, want)
		}
	}
}

// Where no slot is free, a limit that is tried out is asked about one unit, as the others are.
func TestShadowOfAGrantWithoutASlot(t *testing.T) {
	var would []bool
	l := newLimiter(t, core.Limits{core.PerHour(10), core.InFlight(1)}, core.WithShadow(core.PerHour(4)),
		core.WithObserver(func(_ context.Context, e core.Event) { would = append(would, e.Shadow.Allowed) }))
	for _, allowed := range []bool{true, false} {
		if d, err := l.AllowAtMost(t.Context(), "all", 3); err != nil || d.Allowed != allowed {
			t.Fatal(d, err)
		}
	}
	if want := []bool{true, true}; !slices.Equal(would, want) { // one unit of four is left
		t.Errorf("the shadow would allow %v, want %v", would, want)
	}
}
