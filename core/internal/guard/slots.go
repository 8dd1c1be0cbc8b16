package guard

import (
	"context"
	"sync"
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

// Release gives a slot back to the log that has it. After an outage that may be both. If the store does not answer, it
// is told later, or else the lease ends the slot; one that was taken without the store is free at once.
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

// maxUnclaimed is how many unclaimed slots are remembered. What is beyond ends with its lease.
const maxUnclaimed = 10_000

// unclaimed are slots that the store may have recorded for requests which it has not answered in time. Nobody holds
// them. One goroutine gives them back, and exists only while there are any.
type unclaimed struct {
	mu      sync.Mutex
	slots   []unclaimedSlot // oldest first
	running bool
}

type unclaimedSlot struct {
	store.Settlement

	ends time.Time // its lease
}

// add adds a slot if there is room. It reports whether the goroutine must be started.
func (u *unclaimed) add(s unclaimedSlot) (start bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if len(u.slots) >= maxUnclaimed {
		return false
	}
	u.slots = append(u.slots, s)
	start, u.running = !u.running, true
	return start
}

// next removes the oldest slot whose lease has not ended, and returns it. If there is none, the goroutine ends.
func (u *unclaimed) next() (s unclaimedSlot, ok bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for len(u.slots) > 0 {
		if s, u.slots = u.slots[0], u.slots[1:]; time.Until(s.ends) > 0 {
			return s, true
		}
	}
	u.slots, u.running = nil, false
	return s, false
}

// giveBack gives back the slots that the store may have recorded for a request.
func (g *Guard) giveBack(r *request) {
	for i := range r.len() {
		t, _ := r.at(i)
		if !takesSlot(t) || g.store.settler == nil || g.isClosed() {
			continue
		}
		slot := unclaimedSlot{store.Settlement{Key: cloneKey(&t.Key), ID: t.ID}, time.Now().Add(t.Plan.Keep)}
		if g.unclaimed.add(slot) {
			go g.giveBackUnclaimed()
		}
	}
}

func (g *Guard) giveBackUnclaimed() {
	for s, ok := g.unclaimed.next(); ok; s, ok = g.unclaimed.next() {
		for time.Until(s.ends) > 0 {
			err := g.callPatiently(g.background, &s.Key, func(ctx context.Context) error {
				return g.store.settle(ctx, s.Settlement)
			})
			if !store.IsOutage(err) {
				break
			}
			select {
			case <-g.closed:
				return
			case <-time.After(jitter()):
			}
		}
	}
}
