package core_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/adapter"
	"github.com/sashlimit/sash/core/coretest"
	"github.com/sashlimit/sash/core/event"
	"github.com/sashlimit/sash/core/store"
)

// A counter by policy and outcome needs no special cases: each request is one event of a decision, and each names its
// policy.
func TestCounterOfOutcomes(t *testing.T) {
	count := map[string]int{}
	observe := core.WithObserver(func(_ context.Context, e core.Event) { count[e.Policy+" "+e.Outcome.String()]++ })
	var fails error
	key := core.By(func(context.Context) (string, error) { return "k", fails })
	limiter := func(name string, k core.Key, opts ...core.Option) *core.Limiter {
		return newLimiterBy(t, core.PerHour(2), k, append(opts, observe, core.WithName(name))...)
	}
	want := map[string]int{}
	check := func(l *core.Limiter, outcomes ...string) {
		t.Helper()
		for _, outcome := range outcomes {
			want[outcome]++
			d, err := l.Check(from("192.0.2.1:1"))
			if err == nil && d.Allowed {
				d.Serve(func() int { return 500 })
			}
		}
	}
	check(limiter("plain", key), "plain allowed", "plain allowed", "plain denied", "plain denied")
	check(limiter("out", key, core.WithBan(2, time.Hour, time.Hour)),
		"out allowed", "out allowed", "out denied", "out banned", "out banned")
	check(limiter("lists", key, core.WithAllowList(core.ByIP(), "192.0.2.1"),
		core.WithSkip(func(context.Context) bool { t.Error("skip was called for a listed address"); return false })),
		"lists listed")
	check(limiter("denied", key, core.WithDenyList(core.ByIP(), "192.0.2.1")), "denied forbidden")
	check(limiter("list", core.Global(), core.WithDenyList(byText("", errLookup), "k")), "list failed")
	check(limiter("skips", key, core.WithSkip(func(context.Context) bool { return true })), "skips skipped")
	fails = core.ErrNoKey
	check(limiter("none", key), "none no key")
	fails = errors.New("boom")
	check(limiter("error", key), "error failed")
	fails = nil
	check(limiter("panic", core.By(func(context.Context) (string, error) { panic("boom") })), "panic failed")
	check(limiter("refund", key, core.WithRefund(func(_ context.Context, status int) bool { return status == 500 })),
		"refund allowed", "refund allowed", "refund allowed")
	want["refund refunded"] = 3
	if !maps.Equal(count, want) {
		t.Errorf("counted %v\nwant    %v", count, want)
	}
}

// The source of a decision, its mode and cost, and whether it is near a limit.
func TestEventsTellTheirSource(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var last core.Event
		observe := core.WithObserver(func(_ context.Context, e core.Event) { last = e })
		expect := func(source event.Source, mode store.Mode, cost int, near bool) {
			t.Helper()
			got := fmt.Sprint(last.Source, last.Mode, last.Cost, last.NearLimit())
			if want := fmt.Sprint(source, mode, cost, near); got != want {
				t.Errorf("source, mode, cost, near the limit: %s, want %s", got, want)
			}
		}
		l := newLimiter(t, core.PerHour(10), observe)
		l.AllowN(t.Context(), "k", 7)
		expect(event.Memory, store.ModeCharge, 7, false)
		l.Peek(t.Context(), "k")
		expect(event.Memory, store.ModePeek, 1, false)
		l.AllowN(t.Context(), "k", 2)
		expect(event.Memory, store.ModeCharge, 2, true)
		l.AllowN(t.Context(), "k", 2)
		expect(event.Memory, store.ModeCharge, 2, false)
		l.Record(t.Context(), "k", 3)
		expect(event.Memory, store.ModeRecord, 3, true)

		fake := new(coretest.FakeStore)
		l = newLimiterBy(t, core.PerHour(1), core.ByText(), observe, core.WithStore(fake))
		defer l.Close()
		l.Allow(t.Context(), "k")
		expect(event.Store, store.ModeCharge, 1, true)
		l.Allow(t.Context(), "k")
		expect(event.Store, store.ModeCharge, 1, false)
		l.Allow(t.Context(), "k")
		expect(event.Cache, store.ModeCharge, 1, false)
		if n := l.Stats().Denials; n != 1 {
			t.Errorf("%d denials are remembered, want 1", n)
		}
		fake.Fail(errDown)
		l.Allow(t.Context(), "other")
		expect(event.Local, store.ModeCharge, 1, true)
		l.Allow(t.Context(), "")
		expect(event.None, store.ModeCharge, 1, false)
	})
}

// All observers are called, even if one of them panics, and the decision stands.
func TestObserversThatPanic(t *testing.T) {
	for _, value := range []any{"boom", http.ErrAbortHandler} {
		heard := 0
		count := core.WithObserver(func(context.Context, core.Event) { heard++ })
		failing := core.WithObserver(func(context.Context, core.Event) { panic(value) })
		l := newLimiterBy(t, core.Limits{core.PerHour(3), core.InFlight(3)}, core.Global(), count, failing, count)
		got := logged(t, func() {
			for name, ask := range map[string]func() (core.Decision, error){
				"Allow": func() (core.Decision, error) { return l.Allow(t.Context(), "") },
				"Wait":  func() (core.Decision, error) { return l.Wait(t.Context(), "") },
				"Check": func() (core.Decision, error) { return l.Check(from("192.0.2.1:1")) },
			} {
				heard = 0
				if d, err := ask(); err != nil || !d.Allowed || heard != 2 {
					t.Errorf("%s: %v, %v; %d observers have heard, want 2", name, d, err, heard)
				}
			}
		})
		if strings.Count(got, "\n") != 1 || !strings.Contains(got, "an observer has panicked") ||
			!strings.Contains(got, "place=") {
			t.Errorf("logged\n%s", got)
		}
	}
}

// Calls that end before there is a decision are events too, and an error never comes with an allowed decision.
func TestEventsOfCallsWithoutDecision(t *testing.T) {
	var events []core.Event
	limiter := func(p core.Policy, opts ...core.Option) *core.Limiter {
		events = nil
		return newLimiter(t, p, append(opts, core.WithObserver(func(_ context.Context, e core.Event) {
			events = append(events, e)
		}))...)
	}
	one := func(desc string, outcome event.Outcome, err error) {
		t.Helper()
		if len(events) != 1 || events[0].Outcome != outcome || !errors.Is(events[0].Err, err) {
			t.Errorf("%s: %v, want one event, %v with %v", desc, events, outcome, err)
		}
	}

	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	if d, err := limiter(core.PerHour(1)).Wait(canceled, "k"); !errors.Is(err, context.Canceled) || d.Allowed {
		t.Errorf("%v, %v", d, err)
	}
	one("Wait with a context that has ended", event.Failed, context.Canceled)

	server := context.WithValue(t.Context(), http.ServerContextKey, new(http.Server))
	aborts := limiter(core.PerHour(1), core.WithSkip(func(context.Context) bool { panic(http.ErrAbortHandler) }))
	func() {
		defer func() {
			if p := recover(); p != http.ErrAbortHandler { //nolint:errorlint // a panic's value is not a chain
				t.Errorf("panic %v", p)
			}
		}()
		aborts.Check(requestWithContext{from("192.0.2.1:1"), server})
	}()
	one("http.ErrAbortHandler", event.Failed, http.ErrAbortHandler)
}

type requestWithContext struct {
	adapter.Request

	ctx context.Context
}

func (r requestWithContext) Context() context.Context { return r.ctx }

// A unit that is granted while the context ends is given back, and the event does not tell of an admission. A store
// that cannot undo is no reason to say nothing.
func TestEventOfAWaitThatEndsWhileItIsAdmitted(t *testing.T) {
	for _, fails := range []error{nil, errDown} {
		inBubble(t, fmt.Sprint("settling fails: ", fails), func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			var outcomes []event.Outcome
			s := &double{
				Full:   core.NewMemoryStore(),
				take:   func(_ []store.Take, ask func() error) error { defer cancel(); return ask() },
				settle: func(ask func() error) error { return cmp.Or(fails, ask()) },
			}
			l := newLimiter(t, core.PerHour(1), core.WithStore(s),
				core.WithObserver(func(_ context.Context, e core.Event) { outcomes = append(outcomes, e.Outcome) }))
			defer l.Close() // it may tell that one unit is not given back
			d, err := l.Wait(ctx, "k")
			if !errors.Is(err, context.Canceled) || !errors.Is(err, fails) && fails != nil || d.Allowed {
				t.Errorf("%v, %v", d, err)
			}
			if !slices.Equal(outcomes, []event.Outcome{event.Failed}) {
				t.Errorf("outcomes %v, want failed", outcomes)
			}
			if d, err := l.Peek(t.Context(), "k"); err != nil || d.Remaining != 1 {
				t.Errorf("%v, %v: the unit was not given back", d, err)
			}
		})
	}
}
