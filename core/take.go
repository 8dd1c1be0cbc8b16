package core

import (
	"context"
	"math/rand/v2"
	"time"
	"unsafe"

	"github.com/sashlimit/sash/core/event"
	"github.com/sashlimit/sash/core/internal/guard"
	"github.com/sashlimit/sash/core/internal/plan"
	"github.com/sashlimit/sash/core/store"
)

// charge asks the logs of a decision, whose answers are zero.
func (l *Limiter) charge(ctx context.Context, d *Decision) error {
	if d.more == nil {
		d.take.Plan, d.take.ID = d.plan.Logs[0].StorePlan(), 0
	} else if d.more.prepare(d); d.more.asked == 0 { // the request costs nothing
		d.answer.Allowed = true
		d.fill()
		return nil
	}
	takes, answers := d.asked()
	var err error
	if l.lease > 0 {
		err = l.takeLeased(ctx, takes, answers, d)
	} else {
		err = l.take(ctx, takes, answers, d)
	}
	if err != nil {
		return err
	}
	if d.more == nil {
		d.fill()
		return nil
	}
	d.answer = plan.Merge(d.more.logs, takes, answers)
	if d.fill(); d.takesPermits() {
		l.hold(ctx, d)
	}
	return nil
}

// prepare sets what the logs are asked. The costs of units with a name were set before.
func (m *logTakes) prepare(d *Decision) {
	clear(m.costs[:])
	for i, log := range m.logs[:m.asked] {
		t, units := &m.takes[i], 1
		t.Plan, t.ID = log.StorePlan(), 0
		if t.Mode = d.take.Mode; log.InFlight() {
			t.Cost = max(d.take.Cost, 1)
		} else {
			if log.Unit() == d.plan.Unit {
				t.Cost = d.take.Cost
			}
			units = t.Cost
		}
		for _, at := range log.At {
			m.costs[at] = units
		}
	}
	if m.asked < len(m.logs) {
		m.at = time.Now()
		for i := range m.takes[m.asked:] {
			m.takes[m.asked+i].ID = newID()
		}
	}
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
	of := unsafe.Slice(&d.leased, 1) //nolint:gosec // a slice of a variable is safe
	if d.more != nil {
		d.more.leased = make([]guard.Use, len(takes))
		of = d.more.leased
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
func (d *Decision) decidedBy(from guard.Source, err error) error {
	switch {
	case from == guard.FromLocal:
		d.Degraded, d.storeErr, err = true, err, nil
		d.source = event.Local
	case err != nil || d.Degraded: // an earlier take of this decision was decided without the store
	case from == guard.FromCache:
		d.source = event.Cache
	case from == guard.FromLease:
		d.source = event.Lease
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

// newID names an entry that is recorded later.
func newID() uint64 { return rand.Uint64() | 1 }
