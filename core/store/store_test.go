package store_test

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/coretest"
	"github.com/sashlimit/sash/core/store"
)

// The stores of the examples pass the tests that every store passes, with and without the optional methods.
func TestExampleStores(t *testing.T) {
	for name, makeStore := range map[string]func() core.Store{
		"MapStore":  func() core.Store { return NewMapStore() },
		"FullStore": func() core.Store { return FullStore{NewMapStore(), core.NewMemoryStore()} },
	} {
		t.Run(name, func(t *testing.T) {
			coretest.Store(t, coretest.StoreConfig{
				Checks: 20_000,
				New:    func(*testing.T) (core.Store, func(time.Duration)) { return makeStore(), time.Sleep },
				Run: func(t *testing.T, name string, f func(*testing.T)) {
					t.Run(name, func(t *testing.T) { synctest.Test(t, f) })
				},
			})
		})
	}
}

// What needs an optional method is a ConfigError that names it, from New where an option needs it.
func TestLimiterOnMapStore(t *testing.T) {
	want := func(what string, err error, text string) {
		t.Helper()
		if !errors.As(err, new(*core.ConfigError)) || !strings.Contains(err.Error(), text) {
			t.Errorf("%s: %v; want a ConfigError with %q", what, err, text)
		}
	}
	_, err := core.New(core.PerMinute(2), core.Global(), core.WithStore(NewMapStore()),
		core.WithRefund(func(context.Context, int) bool { return true }))
	want("WithRefund", err, "store.Settler")
	_, err = core.New(core.PerMinute(2), core.Global(), core.WithStore(NewMapStore()), core.WithFailure(core.FailLocal))
	want("FailLocal", err, "store.Merger")

	limiter, err := core.New(core.PerMinute(2), core.Global(), core.WithStore(NewMapStore()),
		core.WithBan(2, time.Minute, time.Minute), core.WithShadow(core.PerHour(1)))
	if err != nil {
		t.Fatal(err)
	}
	decision, err := limiter.Allow(t.Context(), "k")
	if err != nil || !decision.Allowed {
		t.Errorf("%+v, %v; want it allowed", decision, err)
	}
	want("Undo", decision.Undo(t.Context()), "store.Settler")
	want("Settle", decision.Settle(t.Context(), 2), "store.Settler")
	_, err = limiter.Log(t.Context(), "k")
	want("Log", err, "store.Lister")
}

// The takes of one request have costs of their own, but in ModeUpTo, where only those of slots may differ.
func TestValidateCosts(t *testing.T) {
	log := store.NewPlan(store.Plan{Limits: []store.Limit{{Quota: 5, Window: time.Hour}}})
	slots := store.NewPlan(store.Plan{Limits: log.Limits, Slots: true})
	for _, c := range []struct {
		plans []*store.Plan
		costs []int
		most  int // 0 if the takes are refused in ModeUpTo
	}{
		{[]*store.Plan{log, log}, []int{3, 3}, 3},
		{[]*store.Plan{log, log}, []int{1, 500}, 0},
		{[]*store.Plan{slots, log, log}, []int{1, 500, 500}, 500},
		{[]*store.Plan{log, slots, log}, []int{2, 9, 3}, 0},
		{[]*store.Plan{slots, slots}, []int{4, 2}, 4},
	} {
		takes := make([]store.Take, len(c.plans))
		for i, p := range c.plans {
			takes[i] = store.Take{Key: store.NewKey("costs", strconv.Itoa(i)), Plan: p, Cost: c.costs[i], ID: 1}
		}
		for mode := store.ModeCharge; mode <= store.ModeUpTo; mode++ {
			for i := range takes {
				takes[i].Mode = mode
			}
			err := store.ValidateTakes(takes, make([]store.Answer, len(takes)))
			if refused := mode == store.ModeUpTo && c.most == 0; (err != nil) != refused {
				t.Errorf("costs %d, mode %v: %v, want an error %v", c.costs, mode, err, refused)
			}
		}
		if got := store.MostGranted(takes); c.most > 0 && got != c.most {
			t.Errorf("costs %d: %d granted at most, want %d", c.costs, got, c.most)
		}
	}
}
