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
	g.breaker.onChange = func(open bool) {
		g.log.change(open)
		if !open { // the store may have lost slots
			g.slots.Hasten()
		}
	}
	return g.slots
}

// logsOfSlots are the logs of a guard's store and those of this process.
type logsOfSlots struct{ *Guard }

// Renew renews slots in the store, and those that this process has counted while the store did not answer.
func (g logsOfSlots) Renew(ctx context.Context, r *store.Renewal, merged []uint64) error {
	if len(merged) > 0 {
		own := *r
		own.IDs = merged
		g.journal.logs.Renew(&own)
	}
	return g.callPatiently(ctx, &r.Key, func(ctx context.Context) error { return g.store.renew(ctx, *r) })
}

// Release gives a slot back to the log that has it. After an outage that may be both. If the store does not answer, a
// replay does so later, or else the lease ends the slot; one that was taken without the store is free at once.
func (g logsOfSlots) Release(ctx context.Context, s *slots.Slot) error {
	settled := store.Settlement{Key: s.Key, ID: s.ID}
	g.journal.logs.Settle(&settled)
	ctx = g.Within(ctx, time.Now())
	err := g.call(&s.Key, func() error {
		return protect(func() error { return g.store.settle(ctx, settled) })
	})
	switch {
	case err == nil && !s.Degraded:
	case err == nil:
		g.journal.unconfirmedSlots.Delete(s.ID)
	case g.failure == Local && !g.isClosed():
		g.journal.release(&store.Take{Key: s.Key, Plan: s.Plan, ID: s.ID}, s.Degraded && !s.Renewed)
		g.startReplays()
	}
	if s.Degraded {
		return nil
	}
	return err
}

// giveBack has the slots given back that the store may have recorded for a request, and that nobody holds. What is not
// given back by the end of its lease ends with it.
func (g *Guard) giveBack(r *request) {
	for i := range r.takes {
		if t := &r.takes[i]; takesSlot(t) && !g.isClosed() {
			g.journal.add(t, journalEntry{id: t.ID, delivery: unconfirmed, settled: true})
		}
	}
	g.startReplays()
}
