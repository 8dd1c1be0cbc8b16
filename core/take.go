package core

import (
	"context"
	"time"
	"unsafe"

	"github.com/sashlimit/sash/core/event"
	"github.com/sashlimit/sash/core/internal/guard"
	"github.com/sashlimit/sash/core/internal/plan"
	"github.com/sashlimit/sash/core/store"
)

// charge asks the logs of a decision, whose answers are zero.
func (l *Limiter) charge(ctx context.Context, d *Decision) error {
	if d.q.More == nil {
		d.q.Take.Plan, d.q.Take.ID = d.q.Plan.Logs[0].StorePlan(), 0
	} else if d.q.Prepare(); d.q.More.Asked == 0 { // the request costs nothing, or no limit is left to count it
		d.q.Answer.Allowed, d.q.Answer.Granted = true, d.q.Take.Cost
		d.fill()
		return nil
	}
	takes, answers := d.q.Asked()
	var err error
	if l.lease > 0 {
		err = l.takeLeased(ctx, takes, answers, d)
	} else {
		err = l.take(ctx, takes, answers, d)
	}
	if err != nil {
		return err
	}
	if d.q.More == nil {
		d.fill()
		return nil
	}
	d.q.Answer, d.q.More.Cached = plan.Merge(d.q.More.Logs, takes, answers), d.source == event.Cache
	if d.fill(); d.q.TakesPermits() {
		l.hold(ctx, d)
	}
	return nil
}

// take passes takes to the logs in memory or to the guard of the store, which set their IDs. It notes what has decided.
func (l *Limiter) take(ctx context.Context, takes []store.Take, answers []store.Answer, d *Decision) error {
	if l.memory != nil {
		l.memory.Take(takes, answers)
		d.source = event.Memory
		return nil
	}
	from, err := l.guard.Take(ctx, takes, answers)
	return d.decidedBy(from, err)
}

// takeLeased is take for the logs of a decision, of a limiter with leases.
func (l *Limiter) takeLeased(ctx context.Context, takes []store.Take, answers []store.Answer, d *Decision) error {
	of := unsafe.Slice(&d.q.Leased, 1) //nolint:gosec // a slice of a variable is safe
	if d.q.More != nil {
		d.q.More.Leased = make([]guard.Use, len(takes))
		of = d.q.More.Leased
	}
	from, err := l.guard.TakeLeased(ctx, takes, answers, of)
	return d.decidedBy(from, err)
}

// takeOne is take for a log beside those of the decision.
func (l *Limiter) takeOne(ctx context.Context, t store.Take, d *Decision) (store.Answer, error) {
	takes, answers := [1]store.Take{t}, [1]store.Answer{}
	err := l.take(ctx, takes[:], answers[:], d)
	return answers[0], err
}

// decidedBy notes what has decided, and returns the error if nothing has.
func (d *Decision) decidedBy(from event.Source, err error) error {
	switch {
	case from == event.Local:
		d.Degraded, d.storeErr, d.source, err = true, err, from, nil
	case err == nil && !d.Degraded: // otherwise an earlier take of this decision was decided without the store
		d.source = from
	}
	return err
}

func (l *Limiter) settle(ctx context.Context, s store.Settlement, degraded bool) error {
	defer l.wake(&s.Key)
	if l.memory != nil {
		l.memory.Settle(&s)
		return nil
	}
	return l.guard.Settle(ctx, s, degraded)
}

// settleLate changes the cost of a take that was not asked about, as if it had been recorded age ago.
func (l *Limiter) settleLate(ctx context.Context, t *store.Take, age time.Duration) error {
	defer l.wake(&t.Key) // it may cost less than at first
	if l.memory == nil {
		return l.guard.SettleLate(ctx, t, age)
	}
	l.memory.Merge(&store.MergeRequest{
		Key: t.Key, Keep: t.Plan.Keep, Entries: []store.Entry{{ID: t.ID, Cost: t.Cost, Age: age}},
	})
	l.memory.Settle(&store.Settlement{Key: t.Key, ID: t.ID, Cost: t.Cost})
	return nil
}

func (l *Limiter) reset(ctx context.Context, key store.Key) error {
	defer l.wake(&key)
	if l.memory != nil {
		l.memory.Reset(&key)
		return nil
	}
	l.guard.EndLeases(ctx, &key)
	return l.guard.Reset(ctx, key)
}
