package redisstore_test

import (
	"fmt"
	"sync"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/store"
)

var plans sync.Map

// planOf returns the plan of limits, with p's other fields. Equal ones have the same address, as those of a limiter do.
func planOf(limits core.Limits, p store.Plan) *store.Plan {
	for _, l := range limits {
		p.Limits = append(p.Limits, store.Limit{Quota: l.Quota, Window: l.Window})
	}
	plan, _ := plans.LoadOrStore(fmt.Sprint(p), store.NewPlan(p))
	return plan.(*store.Plan)
}

// full returns a store as one that can do everything, which those of this package can.
func full(s core.Store) store.Full { return s.(store.Full) }

// listingStore has what a store with streams can do beside taking.
type listingStore interface {
	store.Settler
	store.Lister
	store.Merger
}

func listing(s core.Store) listingStore { return s.(listingStore) }

// kept returns a plan like p that keeps entries for formsKeep, and so many units.
func kept(p *store.Plan, bound int) *store.Plan {
	more := store.Plan{Limits: p.Limits, Shadow: p.Shadow, Keep: formsKeep, Varies: p.Varies, Bound: bound}
	plan, _ := plans.LoadOrStore(fmt.Sprint(more), store.NewPlan(more))
	return plan.(*store.Plan)
}
