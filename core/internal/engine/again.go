package engine

import (
	"cmp"
	"context"

	"github.com/sashlimit/sash/core/store"
)

// Again decides once more about what r was asked: the same limits, identities and costs, but no permits. Overrides and
// periods of the calendar are those of now, or with waits of when it is admitted. It fills next in, which must be zero.
func (r *Result) Again(ctx context.Context, waits bool, next *Result) error {
	set, a := r.asking()
	if r.Shadow != nil {
		a.Shadow = new(Trial)
		a.Shadow.Set, a.Shadow.Ask = r.Shadow.asking()
	}
	if a.Waits = waits; waits {
		a.Mode = store.ModeCharge
	}
	return r.engine.Decide(ctx, set, &a, next)
}

// asking returns what was asked, before there were overrides.
func (r *Result) asking() (*Set, Ask) {
	set := cmp.Or(r.Set.plain, r.Set)
	a := Ask{
		Identities: make([]store.Identity, len(set.Keys)), Cost: r.Cost, Costs: make([]int, len(set.Units)),
		Mode: r.Mode, NoPermits: true,
	}
	all, _ := r.all()
	for i := range all { // overrides leave each unit a limit, and each key one that finds the same
		l := &r.Set.Limits[i]
		for n, k := range set.Keys {
			if k.Spec == l.key.Spec {
				a.Identities[n] = all[i].Identity
			}
		}
		if !l.InFlight {
			a.Costs[l.unit] = all[i].Cost
		}
	}
	return set, a
}
