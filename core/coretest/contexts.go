package coretest

import (
	"context"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/adapter"
)

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

// Callbacks take the framework's context. What a key leaves there, as those of jwtkey leave claims, is there for
// further callbacks and handlers. A request of a unit test has a peer.
func (s handlers[C]) callbacks(t *testing.T) {
	var seen []any
	note := func(c C) { seen = append(seen, s.Context(c).Value(contextKey{})) }
	plan := core.KeyOf("plan", func(r adapter.Request) (scope, text string, err error) {
		if q, ok := r.(adapter.ContextSetter); ok {
			q.SetContext(context.WithValue(r.Context(), contextKey{}, "pro"))
		}
		return "", "acme", nil
	})
	user := core.By(func(c C) (string, error) { note(c); return s.Header(c, "User"), nil })
	app := s.App(nil, func(c C) error { note(c); return s.served(c) },
		s.New(core.LimitBy(func(c C) core.Limits { note(c); return core.Limits{core.PerHour(3)} }),
			core.Join(plan, user, core.ByIP()), core.WithSkip(func(c C) bool { note(c); return false }),
			core.WithCost(func(c C) int { note(c); return len(s.Header(c, "User")) }),
			core.WithRefund(func(c C, _ int) bool { note(c); return false })))
	w := get(t, app)
	if left := w.Header().Get("RateLimit"); w.Code != 200 || left != `"3-per-hour";r=0;t=3600` ||
		!slices.Equal(seen, []any{nil, "pro", "pro", "pro", "pro", "pro"}) {
		t.Errorf("status %d, RateLimit %s, seen %v", w.Code, left, seen)
	}
}

// Frameworks use contexts and memory again. What a decision tells of its request stays that of its request, among many
// at the same time, of which some fail or panic.
func (s handlers[C]) pooled(t *testing.T) {
	const clients, rounds = 50, 20
	var wrong, asked, kept atomic.Int64
	l := limiterFor(t, core.NewMemoryStore(), core.Limits{core.PerHour(1 << 20), core.InFlight(clients)}, byUser,
		core.WithDecisionInContext(), core.WithRefund(func(c C, status int) bool {
			if asked.Add(1); s.Header(c, "Status") != strconv.Itoa(status) {
				wrong.Add(1)
			}
			return status != http.StatusOK
		}))
	fail := func(c C, status int) error {
		if s.Error != nil {
			return s.Error(status, "failed", nil)
		}
		return s.Answer(c, status, "failed")
	}
	recovers := func(next func(C) error) func(C) error {
		return func(c C) (err error) {
			defer func() {
				if recover() != nil {
					err = fail(c, 500)
				}
			}()
			return next(c)
		}
	}
	app := s.App(nil, func(c C) error {
		if _, ok := core.DecisionFrom(s.Context(c)); !ok {
			wrong.Add(1)
		}
		switch s.Header(c, "Status") {
		case "404":
			return fail(c, 404)
		case "500":
			panic("boom")
		}
		kept.Add(1)
		return s.served(c)
	}, recovers, s.From(l))
	var all sync.WaitGroup
	for i := range clients {
		all.Go(func() {
			for round := range rounds {
				status := []string{"200", "404", "500"}[(i+round)%3]
				if w := get(t, app, "Status", status); strconv.Itoa(w.Code) != status {
					wrong.Add(1)
				}
			}
		})
	}
	all.Wait()
	d, err := l.Peek(t.Context(), "ann")
	if limits := d.Limits(); err != nil || limits[0].Used != int(kept.Load()) || limits[1].Used != 0 {
		t.Errorf("%+v, %v; want %d units used, and no permit", limits, err, kept.Load())
	}
	if wrong.Load() > 0 || asked.Load() != clients*rounds {
		t.Errorf("%d wrong, %d asked, want %d", wrong.Load(), asked.Load(), clients*rounds)
	}
}
