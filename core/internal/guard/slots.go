package guard

import (
	"context"
	"time"

	"github.com/sashlimit/sash/core/internal/slots"
	"github.com/sashlimit/sash/core/store"
)

// NewSlots makes the set of slots that requests in flight hold by decisions of this guard. It is called once, before
// the first decision.
func (g *Guard) NewSlots() *slots.Set {
	g.slots = slots.New(logsOfSlots{g})
	return g.slots
}

// logsOfSlots are the logs of a guard's store and those of this process.
type logsOfSlots struct{ *Guard }

// Renew renews slots in the store, and those that this process has counted while the store did not answer.
func (g logsOfSlots) Renew(r *store.Renewal) {
	if g.failure == Local {
		g.journal.logs.Renew(r)
	}
	ctx := g.Within(g.background, time.Now())
	g.call(&r.Key, func() error { //nolint:errcheck // it is renewed again soon
		return protect(func() error { return g.renewer.Renew(ctx, *r) })
	})
}

// Release gives a slot back to the log that has it. After an outage that may be both. If the store does not answer, it
// is told later, or else the lease ends the slot; one that was taken without the store is free at once.
func (g logsOfSlots) Release(ctx context.Context, s *slots.Slot, degraded bool) error {
	settled := store.Settlement{Key: s.Key, ID: s.ID}
	g.journal.logs.Settle(&settled)
	ctx = g.Within(ctx, time.Now())
	err := g.call(&s.Key, func() error {
		return protect(func() error { return g.settler.Settle(ctx, settled) })
	})
	switch {
	case err == nil && !degraded:
	case err == nil:
		g.journal.unconfirmedSlots.Delete(s.ID)
	case g.failure == Local && !g.isClosed():
		g.journal.release(&store.Take{Key: s.Key, Plan: s.Plan, ID: s.ID}, degraded)
		g.startReplays()
	}
	if degraded {
		return nil
	}
	return err
}
