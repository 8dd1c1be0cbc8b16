package core

import (
	"context"
	"errors"
	"strconv"

	"github.com/sashlimit/sash/core/store"
)

// Undo gives back the units that this decision has taken, exactly once, however often it is called, and ends what it
// holds, as [Decision.Release] does. After they have left the window, or after [Limiter.Reset], it does nothing; it
// never makes room for more than the quota. A denial has nothing to give back, even if it was recorded
// ([WithCountDenied]).
//
// An error means that the store could not be asked, so the units may still be counted.
func (d Decision) Undo(ctx context.Context) error { return d.settle(ctx, 0) }

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
	if held := d.held(); held != nil {
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
	return d.settle(ctx, cost)
}

func (d *Decision) settle(ctx context.Context, cost int) error {
	// A recorded denial may have evicted older units. Removing it would make room that was not there before.
	if d.taken == 0 || !d.Allowed {
		return nil
	}
	if d.plan.Counter != SlidingLog {
		option := "Settle"
		if cost == 0 {
			option = "Undo"
			return errors.Join(entriesNeeded(option, d.plan.Counter), d.Release(ctx))
		}
		return entriesNeeded(option, d.plan.Counter)
	}
	var errs []error
	for i, log := range d.plan.Logs {
		if log.InFlight() { // it takes one permit whatever it costs
			continue
		}
		t, _ := d.at(i)
		if err := d.limiter.settle(ctx, store.Settlement{Key: t.Key, ID: t.ID, Cost: cost}, d.Degraded); err != nil {
			errs = append(errs, err)
		}
	}
	if cost == 0 {
		errs = append(errs, d.Release(ctx))
	}
	return errors.Join(errs...)
}

// takeBack is Undo for a decision that its caller never got. Where requests are not known, the units stay counted.
func (d *Decision) takeBack(ctx context.Context) error {
	if d.plan.Counter != SlidingLog {
		return d.Release(ctx)
	}
	return d.Undo(ctx)
}
