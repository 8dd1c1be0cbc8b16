package core

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/sashlimit/sash/core/internal/memory"
	"github.com/sashlimit/sash/core/internal/plan"
	"github.com/sashlimit/sash/core/internal/slots"
	"github.com/sashlimit/sash/core/store"
)

// Undo gives back the units that this decision has taken, exactly once, however often it is called, and ends what it
// holds, as [Decision.Release] does. After they have left the window, or after [Limiter.Reset], it does nothing; it
// never makes room for more than the quota. A denial has nothing to give back, even if it was recorded
// ([WithCountDenied]).
//
// An error means that the store could not be asked, so the units may still be counted.
func (d Decision) Undo(ctx context.Context) error {
	err := d.settle(ctx, "Undo", func(*plan.Log) (int, bool) { return 0, true })
	if held := d.q.Held(); held != nil {
		err = errors.Join(err, d.limiter.release(ctx, held))
	}
	return err
}

// Release ends what the decision holds: a permit of each [InFlight], for other requests to take. It gives no units
// back. Middleware calls it when the handler has ended in whatever way; without HTTP, defer it:
//
//	d, err := limiter.Allow(ctx, "customer 7")
//	if err != nil || !d.Allowed {
//		return errors.Join(err, d.Err())
//	}
//	defer d.Release(context.WithoutCancel(ctx))
//
// It may be called again, and for a decision that holds nothing, as a denial: then it does nothing and returns nil. An
// error means that the store could not be asked, so the permit is taken until its lease ends ([Limit.Lease], which
// describes what happens to a permit that is never released).
func (d Decision) Release(ctx context.Context) error {
	if held := d.q.Held(); held != nil {
		return d.limiter.release(ctx, held)
	}
	return nil
}

// Settle changes the cost of this decision to cost units, more or less than it has taken, as if it had been that from
// the beginning: for work whose cost is known only afterwards, such as tokens or bytes. It may be called again, with
// the total so far. A cost above the quota is recorded as such, and other requests wait until it has left the window.
// If nothing was taken, or the units have left, it does nothing.
//
// The cost is at least 0, which is [Decision.Undo], and at most [MaxQuota].
func (d Decision) Settle(ctx context.Context, cost int) error {
	if cost < 0 || cost > MaxQuota {
		return configError("Settle", strconv.Itoa(cost), "the cost is out of range",
			"pass 0 to "+strconv.Itoa(MaxQuota))
	}
	if cost == 0 {
		return d.Undo(ctx)
	}
	if d.q.Plan != nil {
		if err := d.q.Plan.NoUnnamed("Settle"); err != nil {
			return err
		}
	}
	return d.settle(ctx, "Settle", func(log *plan.Log) (int, bool) { return cost, log.Unit() == d.q.Plan.Unit })
}

// SettleCosts is [Decision.Settle] for units with names: see [Limit.Of]. Units that costs does not name stay as they
// are. A cost of 0 gives back what the decision has taken of the unit, for good. If it has taken nothing, the units are
// recorded then, at the instant of the decision, and after [Decision.Undo] as well.
func (d Decision) SettleCosts(ctx context.Context, costs Costs) error {
	if d.q.Plan == nil {
		return nil
	}
	if err := costs.check("SettleCosts", d.q.Plan); err != nil {
		return err
	}
	return d.settle(ctx, "SettleCosts", func(log *plan.Log) (int, bool) { return costs.of(log.Unit()) })
}

// settle changes the cost of the decision in the logs for which costOf returns one.
func (d *Decision) settle(ctx context.Context, call string, costOf func(*plan.Log) (int, bool)) error {
	// A recorded denial may have evicted older units. Removing it would make room that was not there before.
	if !d.q.Recorded() || !d.Allowed {
		return nil
	}
	if d.q.Plan.Counter != store.SlidingLog {
		return entriesNeeded(call, d.q.Plan.Counter)
	}
	var errs []error
	takes, _ := d.q.Asked()
	for i, log := range d.q.Logs() {
		cost, ok := costOf(log)
		if !ok || log.InFlight() { // it takes one permit whatever it costs
			continue
		}
		t, _ := d.q.At(i)
		if i >= len(takes) && cost > 0 {
			late := store.Take{Key: t.Key, Plan: log.StorePlan(), Cost: cost, ID: t.ID, Mode: store.ModeRecord}
			errs = append(errs, d.limiter.settleLate(ctx, &late, time.Since(d.q.More.At)))
			continue
		}
		if u := d.q.LeasedOf(i); u.IsLeased() {
			errs = append(errs, d.limiter.guard.SettleLeased(ctx, u, t, cost))
			d.limiter.wake(&t.Key)
			continue
		}
		if err := d.limiter.settle(ctx, store.Settlement{Key: t.Key, ID: t.ID, Cost: cost}, d.Degraded); err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// takeBack is Undo for a decision that its caller never got. Where requests are not known, the units stay counted.
func (d *Decision) takeBack(ctx context.Context) error {
	if d.q.Plan == nil || d.q.Plan.Counter != store.SlidingLog { // nil: nothing was counted, in an outage
		return d.Release(ctx)
	}
	return d.Undo(ctx)
}

// hold notes which permits a decision has taken, until it is released. If requests of this process hold all of them
// already, the log has lost some, as in a Redis that was restarted: then the decision becomes a denial.
func (l *Limiter) hold(ctx context.Context, d *Decision) {
	var held []slots.Slot
	for i, log := range d.q.More.Logs {
		if log.InFlight() {
			t := &d.q.More.Takes[i]
			key := store.Key{Namespace: t.Key.Namespace, Identity: t.Key.Clone()}
			held = append(held, slots.Slot{Key: key, ID: t.ID, Plan: t.Plan, Degraded: d.Degraded})
		}
	}
	if held == nil {
		return
	}
	if d.q.More.Held = l.permits.Hold(ctx, held); d.q.More.Held == nil {
		l.denyHeld(ctx, d, held)
	}
}

// denyHeld makes d a denial, because requests of this process hold all permits. It gives back the units that were taken
// with them, except those of other algorithms.
func (l *Limiter) denyHeld(ctx context.Context, d *Decision, held []slots.Slot) {
	takes, answers := d.q.Asked()
	for i, log := range d.q.More.Logs[:len(takes)] {
		t, a := &takes[i], &answers[i]
		a.Granted = 0
		switch {
		case log.InFlight():
			denyPermits(log, a, int(held[0].Taken))
			held = held[1:]
			continue
		case log.KeepsEntries():
			if l.settle(ctx, store.Settlement{Key: t.Key, ID: t.ID}, d.Degraded) != nil {
				l.guard.Withdraw(t)
			}
		}
		for n := range log.Limits {
			if a.State[n].Used == 0 {
				a.State[n].Reset = 0
			}
		}
	}
	d.q.Answer = plan.Merge(d.q.More.Logs, takes, answers)
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
