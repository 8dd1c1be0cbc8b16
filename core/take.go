package core

import (
	"context"

	"github.com/sashlimit/sash/core/event"
	"github.com/sashlimit/sash/core/internal/guard"
	"github.com/sashlimit/sash/core/store"
)

// charge asks the logs of a decision, whose answers are zero.
func (l *Limiter) charge(ctx context.Context, d *Decision) error {
	takes, answers := d.logs()
	for i, log := range d.plan.Logs {
		takes[i].Plan, takes[i].ID = log.StorePlan(), 0
	}
	if d.more != nil {
		for i := range takes {
			takes[i].Cost, takes[i].Mode = d.take.Cost, d.take.Mode
		}
	}
	err := l.take(ctx, takes, answers, d)
	if err != nil {
		return err
	}
	if d.more == nil {
		d.fill()
		return nil
	}
	d.answer = d.plan.Merge(answers, d.fitting(), d.take.Mode)
	if d.fill(); d.takesPermits() {
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

// takeOne is take for a log beside those of the decision.
func (l *Limiter) takeOne(ctx context.Context, t store.Take, d *Decision) (store.Answer, error) {
	takes, answers := [1]store.Take{t}, [1]store.Answer{}
	err := l.take(ctx, takes[:], answers[:], d)
	return answers[0], err
}

// decidedBy notes what has decided, and returns the error if nothing has.
func (d *Decision) decidedBy(from guard.Source, err error) error {
	switch {
	case from == guard.FromLocal:
		d.Degraded, d.storeErr, err = true, err, nil
		d.source = event.Local
	case err != nil || d.Degraded: // an earlier take of this decision was decided without the store
	case from == guard.FromCache:
		d.source = event.Cache
	default:
		d.source = event.Store
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

func (l *Limiter) reset(ctx context.Context, key store.Key) error {
	defer l.wake(&key)
	if l.memory != nil {
		l.memory.Reset(&key)
		return nil
	}
	return l.guard.Reset(ctx, key)
}
