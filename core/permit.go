package core

import (
	"context"

	"github.com/sashlimit/sash/core/internal/memory"
	"github.com/sashlimit/sash/core/internal/plan"
	"github.com/sashlimit/sash/core/internal/slots"
	"github.com/sashlimit/sash/core/store"
)

// hold notes which permits a decision has taken, until it is released. If requests of this process hold all of them
// already, the log has lost some, as in a Redis that was restarted: then the decision becomes a denial.
func (l *Limiter) hold(ctx context.Context, d *Decision) {
	var held []slots.Slot
	for i, log := range d.more.logs {
		if log.InFlight() {
			t := &d.more.takes[i]
			key := store.Key{Namespace: t.Key.Namespace, Identity: t.Key.Clone()}
			held = append(held, slots.Slot{Key: key, ID: t.ID, Plan: t.Plan, Degraded: d.Degraded})
		}
	}
	if held == nil {
		return
	}
	if d.more.held = l.permits.Hold(ctx, held); d.more.held == nil {
		l.denyHeld(ctx, d, held)
	}
}

// denyHeld makes d a denial, because requests of this process hold all permits. It gives back the units that were taken
// with them, except those of other algorithms.
func (l *Limiter) denyHeld(ctx context.Context, d *Decision, held []slots.Slot) {
	takes, answers := d.asked()
	for i, log := range d.more.logs[:len(takes)] {
		t, a := &takes[i], &answers[i]
		a.Granted = 0
		switch {
		case log.InFlight():
			denyPermits(log, a, int(held[0].Taken))
			held = held[1:]
			continue
		case log.KeepsEntries():
			s := store.Settlement{Key: t.Key, ID: t.ID}
			l.settle(ctx, s, d.Degraded) //nolint:errcheck // what the store is not told stays counted
		}
		for n := range log.Limits {
			if a.State[n].Used == 0 {
				a.State[n].Reset = 0
			}
		}
	}
	d.answer = plan.Merge(d.more.logs, takes, answers)
	d.Granted = 0
	d.fill()
}

// denyPermits makes the answer of a log of permits a denial where the permits that are held use up a limit.
func denyPermits(log *plan.Log, a *store.Answer, held int) {
	for n, limit := range log.Limits {
		a.State[n].Used = max(a.State[n].Used, held)
		if n < log.Deciding() && held >= limit.Quota {
			a.Allowed = false
			a.Denied |= 1 << n
		}
	}
}

// release gives the permits of a decision back.
func (l *Limiter) release(ctx context.Context, held *slots.Held) error {
	err := held.Release(ctx)
	for i := range held.Slots {
		l.wake(&held.Slots[i].Key)
	}
	return err
}

// memoryPermits are permits in this process's memory.
type memoryPermits struct{ logs *memory.Store }

func (m memoryPermits) Renew(_ context.Context, r *store.Renewal, _ []uint64) error {
	m.logs.Renew(r)
	return nil
}

func (m memoryPermits) Release(_ context.Context, s *slots.Slot) error {
	m.logs.Settle(&store.Settlement{Key: s.Key, ID: s.ID})
	return nil
}
