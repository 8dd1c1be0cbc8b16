package core_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/adapter"
	"github.com/sashlimit/sash/core/coretest"
	"github.com/sashlimit/sash/core/store"
)

// A denial that was fetched while units were given back stayed in the cache, and denied what there was room for.
func TestDenyCacheWhileUnitsAreGivenBack(t *testing.T) {
	for name, give := range map[string]func(context.Context, *core.Limiter, core.Decision) error{
		"undo":   func(ctx context.Context, _ *core.Limiter, d core.Decision) error { return d.Undo(ctx) },
		"settle": func(ctx context.Context, _ *core.Limiter, d core.Decision) error { return d.Settle(ctx, 1) },
		"reset":  func(ctx context.Context, l *core.Limiter, _ core.Decision) error { return l.Reset(ctx, "k") },
	} {
		inBubble(t, name, func(t *testing.T) {
			for _, asked := range []string{"before it is told", "and answered when it is over"} {
				logs := &double{Full: new(coretest.FakeStore)}
				l := newLimiter(t, core.PerHour(2), core.WithStore(logs))
				d, err := l.AllowN(t.Context(), "k", 2)
				if err != nil || !d.Allowed {
					t.Fatal(d, err)
				}
				deny := func() {
					if d, err := l.Allow(t.Context(), "k"); err != nil || d.Allowed {
						t.Error(d, err)
					}
				}
				back := func() {
					noError(t, give(t.Context(), l, d))
				}
				if asked == "before it is told" {
					before := func(ask func() error) error { deny(); return ask() }
					logs.settle, logs.reset = before, before
					back()
				} else {
					logs.take = func(_ []store.Take, ask func() error) error {
						logs.take = nil
						err := ask()
						back()
						return err
					}
					deny()
				}
				if d, err := l.Allow(t.Context(), "k"); err != nil || !d.Allowed {
					t.Errorf("%s: denied although there is room: %+v, %v", asked, d, err)
				}
			}
		})
	}
}

// If the ban could not be read but the request was charged, the decision was reported as uncounted.
func TestFailOpenForABanAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var heard core.Event
		logs := &double{Full: new(coretest.FakeStore), take: func(takes []store.Take, ask func() error) error {
			if takes[0].Mode == store.ModePeek {
				return errDown
			}
			return ask()
		}}
		l := newLimiter(t, core.PerHour(1), core.WithStore(logs), core.WithFailure(core.FailOpen),
			core.WithDenyCache(0), core.WithBan(5, time.Minute, time.Second),
			core.WithObserver(func(_ context.Context, e core.Event) { heard = e }))
		for range 2 {
			d, err := l.Allow(t.Context(), "k")
			if err != nil || !d.Allowed || !d.Degraded || d.ResetAfter != time.Hour || !errors.Is(heard.Err, errDown) {
				t.Errorf("%+v, %v; the observer heard %v", d, err, heard.Err)
			}
			denied, err := l.Allow(t.Context(), "k")
			if err != nil || denied.Allowed || denied.Banned || !denied.Degraded ||
				denied.RetryAfter != time.Hour || len(denied.Violated) != 1 {
				t.Errorf("%+v, %v; want it denied", denied, err)
			}
			noError(t, d.Undo(t.Context()))
			if entries, err := l.Log(t.Context(), "k"); err != nil || len(entries) != 0 {
				t.Errorf("%v, %v: undone, and counted", entries, err)
			}
		}
	})
}

// A scope in memory that is used again had changed when the outage was over: its units were somebody else's.
func TestScopeIsCopied(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		buffer := make([]byte, 3)
		logs := new(coretest.FakeStore)
		l := newLimiterBy(t, core.PerHour(1), core.KeyOf("x", func(adapter.Request) (scope, text string, err error) {
			return unsafeString(buffer), "user", nil
		}), core.WithStore(logs))
		defer l.Close()
		ask := func(scope string, want bool) {
			t.Helper()
			copy(buffer, scope)
			if d, err := l.Check(from("203.0.113.9:1")); err != nil || d.Allowed != want {
				t.Errorf("%s: %+v, %v; want %v", scope, d, err, want)
			}
		}
		logs.Fail(errDown)
		ask("ann", true)
		copy(buffer, "bob")
		logs.Fail(nil)
		time.Sleep(3 * time.Second)
		synctest.Wait()
		ask("bob", true)
		ask("ann", false)
	})
}
