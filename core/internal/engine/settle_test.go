package engine_test

import (
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sashlimit/sash/core/internal/engine"
	"github.com/sashlimit/sash/core/internal/memory"
	"github.com/sashlimit/sash/core/store"
)

func to(cost int) func(*engine.Limit) (int, bool) {
	return func(*engine.Limit) (int, bool) { return cost, true }
}

// TestUndoOnce gives back exactly once, whatever the algorithm is and whichever copies are undone.
func TestUndoOnce(t *testing.T) {
	for _, limit := range []string{
		"5/hour", "5/hour with fixed window", "5/hour with sliding counter", "5/month", "1/hour burst 5",
		"5/hour by org",
	} {
		synctest.Test(t, func(t *testing.T) {
			e := newEngine(t)
			s := compile(t, e, limit)
			ask := func(cost int) *engine.Result {
				return allow(t, e, s, &engine.Ask{Identities: identities(s, "a", "o"), Cost: cost})
			}
			first, second := ask(2), ask(3)
			one, two := *first, *first
			var all sync.WaitGroup
			for _, r := range []*engine.Result{&one, &two, first} {
				all.Go(func() {
					if err := r.Undo(t.Context()); err != nil {
						t.Error(err)
					}
				})
			}
			all.Wait()
			if err := one.Settle(t.Context(), to(4)); err != nil {
				t.Error(err)
			}
			if r := ask(3); r.Allowed || r.State(0).Used != 3 {
				t.Errorf("%s: used %d after one was undone", limit, r.State(0).Used)
			}
			for _, cost := range []int{5, 1, 4} {
				again := *second
				if err := again.Settle(t.Context(), to(cost)); err != nil {
					t.Error(err)
				}
				if r := ask(5); r.State(0).Used != cost {
					t.Errorf("%s: used %d after a settlement to %d", limit, r.State(0).Used, cost)
				}
			}
		})
	}
}

// TestPermits holds a permit until it is released, renews it, and denies what would be one too many.
func TestPermits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		logs := memory.New(10)
		e := newEngine(t, func(c *engine.Config) { c.Memory = logs })
		s := compile(t, e, "2 in flight", "9/hour")
		ask := func(a engine.Ask) *engine.Result {
			a.Identities, a.Cost = identities(s, "a", ""), 1
			return allow(t, e, s, &a)
		}
		first, second := ask(engine.Ask{}), ask(engine.Ask{})
		time.Sleep(time.Minute) // longer than a lease
		if n := e.Stats().InFlight; n != 2 || !first.Holds() {
			t.Errorf("%d permits are held", n)
		}
		if r := ask(engine.Ask{}); r.Allowed || !r.AwaitsPermit() || r.Retry != 0 || r.State(1).Used != 2 {
			t.Errorf("a third: %v, retry %v, used %d", r.Allowed, r.Retry, r.State(1).Used)
		}
		if r := ask(engine.Ask{NoPermits: true}); !r.Allowed || r.Holds() || r.State(0).Told {
			t.Errorf("a request that holds one: %v", r.Denying())
		}
		if r := ask(engine.Ask{Mode: store.ModeRecord}); !r.Allowed || r.Holds() {
			t.Error("Record took a permit")
		}
		copied := *first
		if err := errors.Join(first.Release(t.Context()), copied.Release(t.Context())); err != nil {
			t.Error(err)
		}
		if r := ask(engine.Ask{Mode: store.ModePeek}); !r.Allowed || r.State(0).Used != 1 {
			t.Errorf("after one was released: %v, used %d", r.Denying(), r.State(0).Used)
		}
		lost := store.Key{Namespace: s.Keys[0].Namespace, Identity: text("a")}
		logs.Reset(&lost, []*store.Limit{s.Limits[0].Store()}, 0) // as in a Redis that was restarted
		ask(engine.Ask{})
		r := ask(engine.Ask{})
		if r.Allowed || !slices.Equal(r.Denying(), []string{"2-in-flight"}) || r.State(1).Used != 5 {
			t.Errorf("one too many: %v, %v, used %d", r.Allowed, r.Denying(), r.State(1).Used)
		}
		if r := ask(engine.Ask{Mode: store.ModePeek, NoPermits: true}); r.State(1).Used != 5 {
			t.Errorf("its units stay: used %d", r.State(1).Used)
		}
		if err := second.Undo(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// TestShadow tries limits beside those that decide: with logs of their own, and what is given back is passed on.
func TestShadow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEngine(t)
		s := compile(t, e, "2/hour")
		tried, err := e.Compile(limits(t, "3/hour", "1/minute by org"), true)
		if err != nil {
			t.Fatal(err)
		}
		ask := func(org string) *engine.Result {
			r := new(engine.Result)
			a := &engine.Ask{Identities: identities(s, "a", ""), Cost: 1}
			a.Shadow = &engine.Trial{Set: tried, Ask: engine.Ask{Identities: identities(tried, "a", org), Cost: 1}}
			if err := e.Decide(t.Context(), s, a, r); err != nil {
				t.Fatal(err)
			}
			return r
		}
		first, second := ask("x"), ask("x")
		if !first.Allowed || !first.Shadow.Allowed || !second.Allowed || second.Shadow.Allowed {
			t.Errorf("allowed %v, %v, would be %v, %v", first.Allowed, second.Allowed, first.Shadow.Allowed,
				second.Shadow.Allowed)
		}
		third := ask("y")
		if third.Allowed || !third.Shadow.Allowed || third.Shadow.State(0).Used != 1 {
			t.Errorf("third: allowed %v, would be %v", third.Allowed, third.Shadow.Allowed)
		}
		if err := errors.Join(first.Undo(t.Context()), second.Undo(t.Context()), third.Undo(t.Context())); err != nil {
			t.Error(err)
		}
		if r := ask("z"); !r.Allowed || r.Shadow.State(0).Used != 0 {
			t.Errorf("after all were undone: %v, the shadow has used %d", r.Allowed, r.Shadow.State(0).Used)
		}
		must(e.Reset(t.Context(), text("a")))
		if r := ask("z"); r.State(0).Used != 0 || r.Shadow.State(0).Used != 0 {
			t.Errorf("after a reset: used %d, the shadow %d", r.State(0).Used, r.Shadow.State(0).Used)
		}
	})
}
