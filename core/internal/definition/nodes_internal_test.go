package definition

import (
	"context"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"

	"github.com/sashlimit/sash/core/internal/testlen"
	"github.com/sashlimit/sash/core/store"
)

// nodes is the definition on a server for each key, which are asked in turn.
type nodes struct {
	*Store

	keep bool // a mistake: what a denied request has taken is not given back
}

func (s *nodes) Take(ctx context.Context, takes []store.Take, answers []store.Answer) error {
	takes = slices.Clone(takes)
	for from := 0; from < len(takes); {
		to := from + 1
		for to < len(takes) && takes[to].Key.Equal(&takes[from].Key) {
			to++
		}
		if err := s.Store.Take(ctx, takes[from:to], answers[from:to]); err != nil {
			return err
		}
		denied := slices.ContainsFunc(answers[from:to], func(a store.Answer) bool { return !a.Allowed })
		if mode := takes[0].Mode; denied && mode != store.ModePeek && mode != store.ModeRecord {
			return s.settle(ctx, takes[:from], answers, 0)
		}
		if granted := answers[from].Granted; takes[0].Mode == store.ModeAtMost {
			if err := s.settle(ctx, takes[:from], answers, granted); err != nil {
				return err
			}
			for i := to; i < len(takes); i++ {
				takes[i].Cost = granted
			}
		}
		from = to
	}
	return nil
}

// settle settles what was recorded already.
func (s *nodes) settle(ctx context.Context, takes []store.Take, answers []store.Answer, cost int) error {
	for i := range takes {
		units, granted := cost, takes[i].Mode == store.ModeAtMost
		if answers[i].Granted = min(answers[i].Granted, cost); takes[i].Limit.Permits {
			units = min(units, 1)
		}
		if s.keep || granted && cost > 0 && takes[i].Limit.Permits {
			continue
		}
		m := store.Settlement{Key: takes[i].Key, Limit: takes[i].Limit, ID: takes[i].ID, Cost: units}
		if err := s.Settle(ctx, m); err != nil {
			return err
		}
	}
	return nil
}

func TestRandomInTurn(t *testing.T) {
	for _, keep := range []bool{false, true} {
		c := Config{InTurn: true, Callers: 8, Operations: testlen.Of(4000, 50_000), New: func(t *testing.T) Clocked {
			c := itself(t)
			c.Store = &nodes{c.Store.(*Store), keep}
			return c
		}}
		if keep { // it is found much earlier
			c.Operations = 500_000
		}
		if n, failure := c.random(t, rand.Uint64()>>16); (failure != "") != keep {
			t.Errorf("with a mistake %v, %d operations: %s", keep, n.operations, failure)
		}
	}
}

// twice executes each take twice, and knows none of them again.
type twice struct{ *Store }

func (s twice) Take(ctx context.Context, takes []store.Take, answers []store.Answer) error {
	if err := s.Store.Take(ctx, takes, answers); err != nil {
		return err
	}
	return s.Store.Take(ctx, takes, answers)
}

// unsafe decides, and records afterwards.
type unsafe struct{ *Store }

func (s unsafe) Take(ctx context.Context, takes []store.Take, answers []store.Answer) error {
	peeks := slices.Clone(takes)
	for i := range peeks {
		if peeks[i].Mode == store.ModeCharge {
			peeks[i].Mode = store.ModePeek
		}
	}
	if takes[0].Mode != store.ModeCharge {
		return s.Store.Take(ctx, takes, answers)
	}
	if err := s.Store.Take(ctx, peeks, answers); err != nil {
		return err
	}
	if slices.ContainsFunc(answers, func(a store.Answer) bool { return !a.Allowed }) {
		return nil
	}
	runtime.Gosched()
	for i := range takes {
		s.mu.Lock()
		g := s.log(&takes[i].Key, takes[i].Limit)
		units, _ := asks(&takes[i])
		g.record(takes[i].Limit, entry{id: takes[i].ID, at: s.now, units: units})
		answers[i].Reset = g.wait(takes[i].Limit, s.now, g.used(takes[i].Limit, s.now)-1)
		s.mu.Unlock()
	}
	return nil
}

func TestRandomFindsMistakesOf(t *testing.T) {
	for name, c := range map[string]Config{
		"takes executed twice": {Twice: true, New: func(t *testing.T) Clocked {
			c := itself(t)
			c.Store = twice{c.Store.(*Store)}
			return c
		}},
		"takes executed again": {Again: true, New: itself},
		"takes at the same time": {Callers: 8, New: func(t *testing.T) Clocked {
			c := itself(t)
			c.Store = unsafe{c.Store.(*Store)}
			return c
		}},
	} {
		t.Run(name, func(t *testing.T) {
			c.Operations = 200_000
			n, failure := c.random(t, rand.Uint64()>>16)
			if failure == "" {
				t.Fatalf("not found in %d operations", n.operations)
			}
			t.Logf("found after %d operations: %s", n.operations, failure)
		})
	}
}
