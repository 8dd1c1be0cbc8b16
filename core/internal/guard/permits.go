package guard

import (
	"context"

	"github.com/sashlimit/sash/core/event"
	"github.com/sashlimit/sash/core/internal/slots"
	"github.com/sashlimit/sash/core/store"
)

// slotLogs are the logs of a guard's store and those of this process.
type slotLogs struct{ *Guard }

// Renew renews slots in the store, and those that this process has counted while the store did not answer.
func (g slotLogs) Renew(ctx context.Context, r *store.Renewal, merged []uint64) error {
	if len(merged) > 0 {
		own := *r
		own.IDs = merged
		g.record.logs.Renew(&own)
	}
	return g.callPatiently(ctx, &r.Key, aside, event.Renew, func(ctx context.Context) error {
		return g.store.renewer.Renew(ctx, *r)
	})
}

// Release gives a slot back. If the store does not answer, a replay does so later, or else the lease ends the slot. A
// slot that only this process knows is free at once.
func (g slotLogs) Release(ctx context.Context, s *slots.Slot) error {
	settled := store.Settlement{Key: s.Key, ID: s.ID}
	g.record.logs.Settle(&settled)
	if s.Degraded && !s.Renewed {
		return nil
	}
	err := g.call(ctx, &s.Key, event.Settle, g.store.settling(settled))
	if err != nil && g.failure == Local {
		g.record.remove(&store.Take{Key: s.Key, Plan: s.Plan, ID: s.ID})
	}
	if s.Degraded {
		return nil
	}
	return err
}

// giveBack has the slots given back that the store may have recorded for a request, and that nobody holds: what this
// process admits now gets other IDs. What is not given back by the end of its lease ends with it.
func (g *Guard) giveBack(r *request) {
	for i := range r.takes {
		if t := &r.takes[i]; t.Plan.Slots && t.Mode != store.ModePeek && t.Mode != store.ModeRecord {
			g.record.remove(t)
			t.ID = newID()
		}
	}
}
