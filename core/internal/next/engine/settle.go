package engine

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/sashlimit/sash/core/internal/next/store"
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
		if err := r.Shadow.Settle(ctx, costOf); err != nil && r.engine.config.ShadowFailed != nil {
			r.engine.config.ShadowFailed(ctx, err)
		}
	}
	// A denial that was recorded may have removed older units. Removing it would make room that was not there before.
	if !r.Allowed || r.Mode == store.ModePeek || r.Cause != ByLimits && r.Cause != ByNothing {
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
	err := r.engine.store.settleLeased(ctx, r.use, r.all()[0].ID, cost)
	for i := range r.all() {
		r.engine.wake(&r.all()[i])
	}
	return err
}

// settle changes the cost of the take of a limit. One settlement of it is under way at a time.
func (r *Result) settle(ctx context.Context, limit, cost int) error {
	n := r.place(limit)
	t, e := &r.all()[n], r.engine
	var own current // in memory, a log of entries knows the cost
	c := &own
	if e.store.isFar || !r.Set.Limits[limit].KeepsEntries() || n >= r.asks {
		c = e.settled.of(settledID{t.ID, limit})
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.known {
		c.known, c.cost = true, r.taken(limit)
		if n < r.asks {
			_, a := r.of(limit)
			c.period = a.Period
		}
	}
	if err := r.settleAgain(ctx, c); err != nil {
		return err
	}
	if c.cost == cost || c.cost == 0 && n < r.asks { // it has that cost, or is not there any more
		return nil
	}
	defer e.wake(t) // it may cost less than before
	if n >= r.asks {
		return r.settleLate(ctx, &r.Set.Limits[limit], t, c, cost)
	}
	return r.settleTo(ctx, t, c, cost)
}

func (r *Result) settleTo(ctx context.Context, t *store.Take, c *current, cost int) error {
	s := store.Settlement{
		Key: t.Key, Limit: t.Limit, ID: t.ID, Was: c.cost, Cost: cost, Age: r.age(), Period: c.period,
	}
	if err := r.engine.store.settle(ctx, &s, r.Degraded); err != nil {
		if t.Limit.Algorithm != store.SlidingLog {
			c.failed = &s // nobody knows whether the store has done it
		}
		return err
	}
	c.cost = cost
	return nil
}

// settleAgain repeats a settlement that has failed, of an algorithm that counts: another one would add the difference
// to a wrong cost. The store does it once. A log of entries finds an entry whatever it costs.
func (r *Result) settleAgain(ctx context.Context, c *current) error {
	if c.failed == nil {
		return nil
	}
	c.failed.Age = r.age()
	if err := r.engine.store.settle(ctx, c.failed, r.Degraded); err != nil {
		return err
	}
	c.cost, c.failed = c.failed.Cost, nil
	return nil
}

// settleLate records what a limit was not asked for, since it cost nothing.
func (r *Result) settleLate(ctx context.Context, l *Limit, t *store.Take, c *current, cost int) error {
	late := store.Take{Key: t.Key, Limit: l.Store(), Cost: cost, ID: t.ID, Mode: store.ModeRecord}
	switch {
	case l.KeepsEntries() && cost > 0: // a union, which changes the cost if it was recorded before
		err := r.engine.store.add(ctx, &late, r.age())
		if err == nil {
			c.cost = cost
		}
		return err
	case !l.KeepsEntries() && c.period == 0:
		peek, answer := [1]store.Take{late}, [1]store.Answer{}
		peek[0].Mode = store.ModePeek
		if _, err := r.engine.store.take(ctx, peek[:], answer[:]); err != nil {
			return err
		}
		c.period = answer[0].Period
	}
	return r.settleTo(ctx, &late, c, cost)
}

// age returns how long ago the takes were made.
func (r *Result) age() time.Duration {
	if r.at == 0 {
		return 0
	}
	return time.Since(processStart) - r.at
}

// settled has what takes that were settled cost now, as copies of a decision do not know it of each other. It forgets
// the oldest: a settlement of one take follows another soon, if at all.
type settled struct {
	mu          sync.Mutex
	now, before map[settledID]*current
}

// mostSettled is how many takes each of the maps of [settled] has at most.
const mostSettled = 1 << 15

type settledID struct {
	id    uint64
	limit int
}

// current is what a take costs now.
type current struct {
	mu     sync.Mutex // held while it is settled
	known  bool       // the others are set
	cost   int
	period int64             // of an algorithm that counts
	failed *store.Settlement // of which nobody knows whether it was done, or nil
}

func (s *settled) of(id settledID) *current {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.now[id]; c != nil {
		return c
	}
	c := s.before[id]
	if c == nil {
		c = new(current)
	}
	if s.now == nil || len(s.now) >= mostSettled {
		s.now, s.before = make(map[settledID]*current), s.now
	}
	s.now[id] = c
	return c
}
