package core_test

import (
	"context"
	"net/http"
	"slices"
	"testing"

	"github.com/sashlimit/sash/core"
)

// Limits that are tried out may depend on the request although those in force do not.
func TestShadowChosenPerRequest(t *testing.T) {
	always := core.LimitBy(func(*http.Request) core.Limits { return core.Limits{core.PerHour(100)} })
	for name, policy := range map[string]core.Policy{"fixed": core.PerHour(100), "chosen": always} {
		var would []bool
		l := newLimiter(t, policy,
			core.WithShadow(core.LimitBy(func(r *http.Request) core.Limits {
				if r.Header.Get("Plan") == "pro" {
					return core.Limits{core.PerHour(20)}
				}
				return core.Limits{core.PerHour(2)}
			})),
			core.WithObserver(func(_ context.Context, e core.Event) { would = append(would, e.Shadow.Allowed) }))
		for _, plan := range []string{"", "", "", "pro", ""} {
			d, err := l.Check(from("192.0.2.1:1", "Plan", plan), new(int))
			if err != nil || !d.Allowed {
				t.Fatal(d, err)
			}
			d.Serve(func() int { return 200 })
		}
		if want := []bool{true, true, false, true, false}; !slices.Equal(would, want) {
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

// The log of a unit is listed also where a shadow is chosen for each request.
func TestLogOfAUnitWithAChosenShadow(t *testing.T) {
	l := newLimiter(t, core.PerMinute(9).Of("tokens"), core.WithShadow(core.LimitBy(func(context.Context) core.Limits {
		return core.Limits{core.PerMinute(5).Of("tokens")}
	})))
	allowCosts(t, l, core.Costs{"tokens": 3}, true)
	if entries, err := l.Log(t.Context(), "k"); err != nil || len(entries) != 1 || entries[0].Cost != 3 {
		t.Errorf("%v, %v; want an entry of 3 units", entries, err)
	}
}
