package engine

import (
	"context"
	"slices"

	"github.com/sashlimit/sash/core/store"
)

// Again decides once more about what r was asked: the same limits, identities and costs, but no permits. Overrides and
// periods of the calendar are those of now. It fills next in, which must be zero.
func (r *Result) Again(ctx context.Context, next *Result) error {
	set, a := r.asksAgain()
	return r.engine.Decide(ctx, set, &a, next)
}

// WaitAgain is Again for a request that waits until it is admitted, as by [Engine.Wait].
func (r *Result) WaitAgain(ctx context.Context, next *Result) error {
	set, a := r.asksAgain()
	a.Tries, a.Mode = false, store.ModeCharge
	return r.engine.Wait(ctx, set, &a, next)
}

func (r *Result) asksAgain() (set *Set, a Ask) {
	if set, a = r.asking(); r.Shadow != nil {
		a.Shadow = new(Trial)
		a.Shadow.Set, a.Shadow.Ask = r.Shadow.asking()
	}
	return set, a
}

// asking returns what was asked, before there were overrides.
func (r *Result) asking() (*Set, Ask) {
	a := Ask{Cost: r.Cost, Mode: r.Mode, Tries: true, NoPermits: true}
	if r.base != nil {
		a.Identities, a.Costs = r.base.Ask.Identities, r.base.Ask.Costs
		return r.base.Set, a
	}
	a.Identities, a.Costs = make([]store.Identity, len(r.Set.Keys)), make([]int, len(r.Set.Units))
	all, _ := r.all()
	for i := range all {
		l := &r.Set.Limits[i]
		if a.Identities[l.Key] = all[i].Identity; !l.InFlight {
			a.Costs[l.unit] = all[i].Cost
		}
	}
	return r.Set, a
}

// newBase returns what a request was asked before overrides have replaced limits.
func newBase(set *Set, a *Ask) *Trial {
	return &Trial{set, Ask{Identities: slices.Clone(a.Identities), Costs: slices.Clone(a.Costs)}}
}
