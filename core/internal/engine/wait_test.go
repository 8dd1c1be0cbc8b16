package engine_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sashlimit/sash/core/internal/engine"
	"github.com/sashlimit/sash/core/internal/memory"
)

// TestWaitEnds returns at once if a request's own wait lasts longer than its context, also behind others; if its cost
// never fits; and when its context ends.
func TestWaitEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEngine(t)
		s := compile(t, e, "2/10s")
		ask := func(cost int) *engine.Ask {
			return &engine.Ask{Identities: identities(s, "a", ""), Cost: cost}
		}
		allow(t, e, s, ask(2))
		go wait(t.Context(), e, s, ask(2), new(engine.Result)) // it is the first of the line
		synctest.Wait()
		within := func(d time.Duration, cost int) (*engine.Result, time.Duration, error) {
			ctx, cancel := context.WithTimeout(t.Context(), d)
			defer cancel()
			start, r := time.Now(), new(engine.Result)
			err := wait(ctx, e, s, ask(cost), r)
			return r, time.Since(start), err
		}
		if r, took, err := within(9*time.Second, 1); !errors.Is(err, context.DeadlineExceeded) || took != 0 ||
			r.Retry != 10*time.Second {
			t.Errorf("its own wait is too long: %v after %v, retry %v", err, took, r.Retry)
		}
		if r, took, err := within(9*time.Second, 3); err != nil || took != 0 || !r.Never {
			t.Errorf("it never fits: %v after %v", err, took)
		}
		if r, took, err := within(15*time.Second, 1); !errors.Is(err, context.DeadlineExceeded) ||
			took != 10*time.Second || r.Allowed {
			t.Errorf("others were before it: %v after %v", err, took)
		}
		if r, took, err := within(15*time.Second, 1); err != nil || took != 10*time.Second || !r.Allowed {
			t.Errorf("it has room in time: %v after %v", err, took)
		}
	})
}

// TestWaitWakes wakes the first of a line when something is given back.
func TestWaitWakes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, limit := range map[string]string{
			"log": "1/hour", "common log": "1/hour by org", "month": "1/month", "permits": "1 in flight",
		} {
			e := newEngine(t)
			s := compile(t, e, limit, "100/day")
			ask := func(user string) *engine.Ask {
				return &engine.Ask{Identities: identities(s, user, "o"), Cost: 1}
			}
			for what, give := range map[string]func(r *engine.Result) error{
				"undo": func(r *engine.Result) error { return r.Undo(t.Context()) },
				"settle": func(r *engine.Result) error {
					return errors.Join(r.Settle(t.Context(), to(0)), r.Release(t.Context()))
				},
				"reset": func(*engine.Result) error { return e.Reset(t.Context(), text("a")) },
			} {
				if what == "reset" && (name == "permits" || name == "common log") { // it leaves these alone
					continue
				}
				start, r := time.Now(), allow(t, e, s, ask("a"))
				var waited engine.Result
				done := make(chan error, 1)
				go func() { done <- wait(t.Context(), e, s, ask("a"), &waited) }()
				time.Sleep(50 * time.Millisecond)
				if err := give(r); err != nil {
					t.Error(err)
				}
				if err := <-done; err != nil || time.Since(start) != 50*time.Millisecond {
					t.Errorf("%s, %s: %v after %v", name, what, err, time.Since(start))
				}
				if err := waited.Undo(t.Context()); err != nil {
					t.Error(err)
				}
			}
		}
	})
}

// TestWaitForPermits looks for permits that other processes give back.
func TestWaitForPermits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		logs := memory.New(10)
		use := func(c *engine.Config) { c.Memory = logs }
		here, there := newEngine(t, use), newEngine(t, use)
		s := compile(t, here, "1 in flight")
		a := &engine.Ask{Identities: identities(s, "a", ""), Cost: 1}
		first := allow(t, here, s, a)
		other := compile(t, there, "1 in flight")
		start := time.Now()
		go func() {
			time.Sleep(30 * time.Second)
			if err := first.Release(t.Context()); err != nil {
				t.Error(err)
			}
		}()
		var r engine.Result
		err := wait(t.Context(), there, other, &engine.Ask{Identities: a.Identities, Cost: 1}, &r)
		if took := time.Since(start); err != nil || took < 30*time.Second || took > 31*time.Second {
			t.Errorf("%v after %v", err, took)
		}
		if err = r.Release(t.Context()); err != nil {
			t.Error(err)
		}
	})
}
