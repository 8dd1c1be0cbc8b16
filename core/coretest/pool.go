package coretest

import (
	"context"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/event"
)

// Handlers may write to a request's memory, and servers use it again. Refunds and events have the key that was charged.
func (s handlers[C]) keepsTheKey(t *testing.T) {
	var events []core.Event
	user := core.By(func(c C) (string, error) { return s.Header(c, "User"), nil })
	store := core.NewMemoryStore()
	unobserved := limiterFor(t, store, core.PerMinute(9), user)
	l := limiterFor(t, store, core.PerMinute(9), user,
		core.WithRefund(func(c C, _ int) bool { return s.Header(c, "Back") != "" }),
		core.WithObserver(func(_ context.Context, e core.Event) { events = append(events, e) }))
	app := s.App(nil, func(c C) error { s.SetHeader(c, "User", "bob"); return nil }, s.From(l))
	get(t, app, "Back", "1")
	if n := used(t, unobserved); n != 0 {
		t.Errorf("%d units used, want 0", n)
	}
	get(t, app)
	get(t, app, "User", "eve")
	want := []core.Event{{Key: "ann"}, {Key: "ann", Outcome: event.Refunded}, {Key: "ann"}, {Key: "eve"}}
	if len(events) != len(want) {
		t.Fatalf("%d events, want %d", len(events), len(want))
	}
	for i, e := range events {
		if e.Key != want[i].Key || e.Outcome != want[i].Outcome || e.Err != nil || !e.Decision.Allowed {
			t.Errorf("event %d: %+v", i+1, e)
		}
	}
	for i, left := range []int{1, 1, 0} { // the second's unit is back already
		if err := events[i].Decision.Undo(t.Context()); err != nil || used(t, unobserved) != left {
			t.Errorf("event %d: %d units used, %v; want %d", i+1, used(t, unobserved), err, left)
		}
	}
}

// Frameworks use contexts and memory again. What a decision tells of its request stays that of its request, among many
// at the same time, of which some fail or panic.
func (s handlers[C]) pooled(t *testing.T) {
	const clients, rounds, users = 50, 20, 5
	var wrong, asked atomic.Int64
	user := core.By(func(c C) (string, error) { return s.Header(c, "User"), nil })
	l := limiterFor(t, core.NewMemoryStore(), core.Limits{core.PerHour(1 << 20), core.InFlight(clients)}, user,
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
	app := s.App(nil, func(c C) error {
		if _, ok := core.DecisionFrom(s.Context(c)); !ok {
			wrong.Add(1)
		}
		switch s.Header(c, "Status") {
		case "404":
			return fail(c, 404)
		case "500":
			panic("boom")
		case "502":
			return s.Answer(c, 502, "down")
		}
		return s.served(c)
	}, func(next func(C) error) func(C) error {
		return func(c C) (err error) {
			defer func() {
				if recover() != nil {
					err = fail(c, 500)
				}
			}()
			return next(c)
		}
	}, s.From(l))
	var wg sync.WaitGroup
	for i := range clients {
		wg.Go(func() {
			for round := range rounds {
				status := []string{"200", "404", "500", "502"}[(i/users+round)%4]
				if w := get(t, app, "User", strconv.Itoa(i%users), "Status", status); strconv.Itoa(w.Code) != status {
					wrong.Add(1)
				}
			}
		})
	}
	wg.Wait()
	if wrong.Load() > 0 || asked.Load() != clients*rounds {
		t.Errorf("%d wrong, %d asked, want %d", wrong.Load(), asked.Load(), clients*rounds)
	}
	for i := range users {
		d, err := l.Peek(t.Context(), strconv.Itoa(i))
		if limits := d.Limits(); err != nil || limits[0].Used != clients*rounds/users/4 || limits[1].Used != 0 {
			t.Errorf("%+v, %v", limits, err)
		}
	}
}
