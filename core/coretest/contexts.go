package coretest

import (
	"context"
	"slices"
	"testing"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/adapter"
)

// Callbacks take the framework's context.
func (s handlers[C]) callbacks(t *testing.T) {
	app := s.App(nil, s.served,
		func(next func(C) error) func(C) error {
			return func(c C) error { s.Set(c, "user", s.Header(c, "X-User")); return next(c) }
		},
		s.New(
			core.LimitBy(func(c C) core.Limits {
				if s.Header(c, "Plan") == "pro" {
					return core.Limits{core.PerMinute(20)}
				}
				return core.Limits{core.PerMinute(4)}
			}),
			core.First(
				core.ByValue("user"),
				core.By(func(c C) (string, error) { return s.Header(c, "Id"), nil }),
				core.Global(),
			),
			core.WithSkip(func(c C) bool { return s.Header(c, "Health") != "" }),
			core.WithCost(func(c C) int { return len(s.Header(c, "Unit")) + 1 }),
		))
	ask := func(want string, header ...string) {
		t.Helper()
		if got := get(t, app, header...).Header().Get("RateLimit"); got != want {
			t.Errorf("%v: RateLimit %s, want %s", header, got, want)
		}
	}
	ask(`"4-per-minute";r=3;t=60`, "X-User", "ann")
	ask(`"4-per-minute";r=3;t=60`, "Id", "bob")
	ask(`"4-per-minute";r=3;t=60`)
	ask(``, "Health", "1")
	ask(`"4-per-minute";r=1;t=60`, "X-User", "ann", "Unit", "1")
	ask(`"20-per-minute";r=16;t=60`, "X-User", "ann", "Plan", "pro")
}

type contextKey struct{}

// ByValue finds what earlier middleware has set in the framework's context or in the request's. What is in the latter
// stays there, beside the decision.
func (s handlers[C]) values(t *testing.T) {
	for _, earlier := range []struct {
		set  func(C)
		left any // in the request's context
	}{
		{func(c C) { s.Set(c, "user", "ann") }, nil},
		{func(c C) { s.SetContext(c, context.WithValue(s.Context(c), contextKey{}, "ann")) }, "ann"},
	} {
		app := s.App(nil, func(c C) error {
			left := s.Context(c).Value(contextKey{})
			if _, ok := core.DecisionFrom(s.Context(c)); !ok || left != earlier.left {
				t.Errorf("the context has a decision: %v, and %v; want %v", ok, left, earlier.left)
			}
			return s.served(c)
		}, func(next func(C) error) func(C) error {
			return func(c C) error { earlier.set(c); return next(c) }
		}, s.New(core.PerMinute(1), core.First(core.ByValue("user"), core.ByValue(contextKey{})),
			core.WithDecisionInContext()))
		if first, second := get(t, app), get(t, app); first.Code != 200 || second.Code != 429 {
			t.Errorf("status %d, then %d", first.Code, second.Code)
		}
	}
}

// What a key leaves in the context, as those of jwtkey leave claims, is there for callbacks and handlers.
func (s handlers[C]) contextOfKeys(t *testing.T) {
	var seen []any
	note := func(c C) { seen = append(seen, s.Context(c).Value(contextKey{})) }
	key := core.KeyOf("plan", func(r adapter.Request) (scope, text string, err error) {
		if q, ok := r.(adapter.ContextSetter); ok {
			q.SetContext(context.WithValue(r.Context(), contextKey{}, "pro"))
		}
		return "", "ann", nil
	})
	app := s.App(nil, func(c C) error { note(c); return s.served(c) },
		s.New(core.LimitBy(func(c C) core.Limits { note(c); return core.Limits{core.PerHour(3)} }), key,
			core.WithRefund(func(c C, _ int) bool { note(c); return false })))
	if w := get(t, app); w.Code != 200 || !slices.Equal(seen, []any{"pro", "pro", "pro"}) {
		t.Errorf("status %d, seen %v", w.Code, seen)
	}
}

// Requests of unit tests have a peer, and are limited by it.
func (s handlers[C]) unitTests(t *testing.T) {
	l := limiterFor(t, core.NewMemoryStore(), core.PerMinute(2), core.ByIP())
	app := s.App(nil, s.served, s.From(l))
	for i, want := range []int{200, 200, 429} {
		if w := get(t, app); w.Code != want {
			t.Errorf("request %d: status %d, body %s; want %d", i+1, w.Code, w.Body, want)
		}
	}
	if d, err := l.Peek(t.Context(), "192.0.2.1"); err != nil || d.Used != 2 {
		t.Errorf("%d units used by 192.0.2.1, %v; want 2", d.Used, err)
	}
}
