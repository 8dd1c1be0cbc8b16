package engine

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/sashlimit/sash/core/event"
	"github.com/sashlimit/sash/core/store"
)

// Undo gives back all that was taken, exactly once, and ends what is held.
func (r *Result) Undo(ctx context.Context) error {
	err := r.Settle(ctx, func(*Limit) (int, bool) { return 0, true })
	return errors.Join(err, r.Release(ctx))
}

// Settle changes the cost in the logs of the limits for which costOf returns one, as if it had been that from the
// beginning. What was given back is not taken again. What was left out because it cost nothing is recorded, as of the
// decision; by algorithms that count, in the present period. It may be called again. Permits are left alone.
func (r *Result) Settle(ctx context.Context, costOf func(*Limit) (cost int, ok bool)) error {
	if r.Shadow != nil {
		r.engine.ShadowFailed(ctx, r.engine.config.Policy, r.Shadow.Settle(ctx, costOf))
	}
	// A denial that was recorded may have removed older units. Removing it would make room that was not there before.
	if !r.Records() {
		return nil
	}
	if r.use.IsLeased() {
		return r.settleLeased(ctx, costOf)
	}
	var errs []error
	for limit := range r.Set.Limits {
		l := &r.Set.Limits[limit]
		cost, ok := costOf(l)
		if !ok || l.InFlight { // it takes one permit whatever it costs
			continue
		}
		errs = append(errs, r.settle(ctx, limit, cost))
	}
	return errors.Join(errs...)
}

// settleLeased changes the cost of a unit that was spent of a lease. All limits count the same.
func (r *Result) settleLeased(ctx context.Context, costOf func(*Limit) (cost int, ok bool)) error {
	cost, ok := costOf(&r.Set.Limits[0])
	if !ok {
		return nil
	}
	all, _ := r.all()
	err := r.engine.store.guard.SettleLeased(ctx, r.use, all[0].ID, cost)
	for i := range all {
		r.engine.wake(&all[i].Key, all[i].Limit)
	}
	return err
}

// settle changes the cost of the take of a limit. One settlement of it is under way at a time.
func (r *Result) settle(ctx context.Context, limit, cost int) error {
	all, _ := r.all()
	l, t, e := &r.Set.Limits[limit], &all[limit], r.engine
	late := t.Cost == 0
	if !e.store.isFar && l.KeepsEntries() && !late { // in memory, a log of entries knows what they cost
		defer e.wake(&t.Key, t.Limit)
		return e.store.Settle(ctx, store.Settlement{Key: t.Key, Limit: t.Limit, ID: t.ID, Cost: cost}, false)
	}
	c := e.settled.get(settledID{t.ID, limit}, func() *current {
		as := store.Settlement{Key: t.Key.Clone(), Limit: t.Limit, ID: t.ID}
		c := &current{isLocal: r.isLocal(), resets: r.resets, as: as}
		if !late {
			_, a := r.of(limit)
			c.cost, c.as.Period = r.taken(t, a), a.Period
		}
		return c
	})
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.failed { // nobody knows what it costs, unless the settlement is repeated, which is done once
		if err := r.settleTo(ctx, c, c.as.Cost); err != nil {
			return err
		}
	}
	if c.cost == cost || c.cost == 0 && !late || e.wasReset(&t.Key, c.resets) {
		return nil // it has that cost, or is not there any more
	}
	defer e.wake(&t.Key, t.Limit) // it may cost less than before
	if late && (l.KeepsEntries() && cost > 0 || !c.added) {
		return r.add(ctx, l, c, cost)
	}
	return r.settleTo(ctx, c, cost)
}

func (r *Result) settleTo(ctx context.Context, c *current, cost int) error {
	c.as.Was, c.as.Cost, c.as.Age = c.cost, cost, r.age()
	err := r.engine.store.Settle(ctx, c.as, c.isLocal)
	if c.failed = err != nil && !errors.As(err, new(*store.ConfigError)); err == nil {
		c.cost = cost
	}
	return err
}

// add records what a limit was not asked for, since it cost nothing: in a log of entries at the instant of the
// decision, by a union, which changes the cost if it was recorded before.
func (r *Result) add(ctx context.Context, l *Limit, c *current, cost int) error {
	t := store.Take{Key: c.as.Key, Limit: l.log.stored(true), Cost: cost, ID: c.as.ID, Mode: store.ModeCharge}
	if l.KeepsEntries() {
		err := r.engine.store.Add(ctx, &t, r.age())
		if err == nil {
			c.added, c.cost = true, cost
		}
		return err
	}
	resets := r.engine.resets.Load()
	takes, answers := [1]store.Take{t}, [1]store.Answer{}
	source, err := r.engine.store.take(ctx, takes[:], answers[:])
	if c.isLocal = source == event.Local; err != nil && !c.isLocal {
		return err
	}
	c.added, c.resets, c.cost = true, resets, cost
	c.as.ID, c.as.Limit, c.as.Period = takes[0].ID, t.Limit, answers[0].Period
	return nil
}

// age returns how long ago the takes were made.
func (r *Result) age() time.Duration {
	if r.at == 0 {
		return 0
	}
	return time.Since(processStart) - r.at
}

// mostSettled is how many takes are remembered that were settled. Copies of a decision do not know it of each other,
// and a settlement of one take follows another soon, if at all.
const mostSettled = 1 << 15

type settledID struct {
	id    uint64
	limit int
}

// current is what a take costs now.
type current struct {
	mu      sync.Mutex // held while it is settled
	cost    int
	added   bool   // after the decision
	isLocal bool   // without the store
	failed  bool   // nobody knows whether the latest settlement was done
	resets  uint64 // how many resets there had been when it was taken
	as      store.Settlement
}
