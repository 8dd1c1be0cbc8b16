package core_test

import (
	"context"
	"strconv"
	"testing"
	"testing/synctest"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/adapter"
	"github.com/sashlimit/sash/core/internal/allocs"
)

func inBubble(t *testing.T, name string, f func(*testing.T)) {
	t.Run(name, func(t *testing.T) { synctest.Test(t, f) })
}

func TestNothingIsAllocated(t *testing.T) {
	l := newLimiter(t, core.PerSecond(100))
	keys := make([]string, 1000)
	for i := range keys {
		keys[i] = "customer " + strconv.Itoa(i)
		l.Allow(t.Context(), keys[i])
	}
	r := adapter.Request(from("203.0.113.9:4711"))
	byIP := newLimiterBy(t, core.PerSecond(1000), core.ByIP())
	plan := core.Limits{core.PerSecond(100)}
	chosen := newLimiterBy(t, core.LimitBy(func(context.Context) core.Limits { return plan }), core.Global())
	observed := newLimiter(t, core.PerSecond(1000), core.WithObserver(func(context.Context, core.Event) {}))
	i := 0
	for _, c := range []struct {
		desc string
		f    func() (core.Decision, error)
	}{
		{"observed", func() (core.Decision, error) { return observed.Allow(t.Context(), "k") }},
		{"one key, mostly denied", func() (core.Decision, error) { return l.Allow(t.Context(), "k") }},
		{"many keys", func() (core.Decision, error) { i++; return l.Allow(t.Context(), keys[i%len(keys)]) }},
		{"peek", func() (core.Decision, error) { return l.Peek(t.Context(), "k") }},
		{"limits by request", func() (core.Decision, error) {
			d, err := chosen.Check(r)
			d.Serve(func() int { return 200 })
			return d, err
		}},
		{"request by address", func() (core.Decision, error) {
			d, err := byIP.Check(r)
			d.Serve(func() int { return 200 })
			return d, err
		}},
	} {
		for range 20_000 { // until the rings have their size
			c.f()
		}
		if n := allocs.PerRun(10_000, func() { c.f() }); n != 0 {
			t.Errorf("%s: %v allocations a decision", c.desc, n)
		}
	}
}

func newLimiter(t *testing.T, p core.Policy, opts ...core.Option) *core.Limiter {
	t.Helper()
	return newLimiterBy(t, p, core.ByText(), opts...)
}
