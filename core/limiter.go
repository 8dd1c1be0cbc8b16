package core

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/sashlimit/sash/core/adapter"
	"github.com/sashlimit/sash/core/event"
	"github.com/sashlimit/sash/core/internal/bridge"
	"github.com/sashlimit/sash/core/internal/guard"
	"github.com/sashlimit/sash/core/internal/inflight"
	"github.com/sashlimit/sash/core/internal/memory"
	"github.com/sashlimit/sash/core/internal/plan"
	"github.com/sashlimit/sash/core/internal/queue"
	"github.com/sashlimit/sash/core/internal/slots"
	"github.com/sashlimit/sash/core/store"
)

// Limiter decides about requests. It is safe for concurrent use. Make one with [New] and keep it: a limiter that is
// made within a handler has empty logs, so it limits nothing. It need not be closed; see [Limiter.Close].
type Limiter struct {
	settings

	policy    *policy
	key       Key
	lister    store.Lister  // store, if it can list logs, or nil
	memory    *memory.Store // of store, if it is a MemoryStore, or nil
	guard     *guard.Guard  // of any other store, which may fail to answer
	namespace *store.Namespace
	inFlight  *inflight.Set
	queues    *queue.Queues[queueKey, *plan.Log]
	slots     *slots.Set // of requests in flight
	refusals  *refusalLog
	asked     asked

	rereads bool // a request may read a key more than once, unless it remembers its keys

	choose     bridge.Chooser[Key] // of a limiter with rules, or nil
	variants   *variants           // of a limiter with rules
	ruleSpaces *sync.Map           // of *namedSpaces by name, of a limiter with rules

	life *lifetime
}

// settings are what options choose and a limiter keeps.
type settings struct {
	store         Store
	prefixes      prefixes
	draft, legacy bool // the header fields of responses: those of the draft, and X-RateLimit
	mode          store.Mode
	ban           *ban
	lists         []*list // pointers, so that a copy of a Limiter prints the same and shares its locks
	cost          func(adapter.Request) int
	skip          func(adapter.Request) bool
	refunds       func(adapter.Request, int) bool
	observers     []func(context.Context, Event)
	inContext     bool // handlers get the decision
	deny, fail    any  // the handlers given to an adapter's WithDeny and WithError; see Bind
	callbackTypes []callbackType
}

// variants are copies of a limiter that differ in what decides while the store does not answer, by Failure.
type variants [3]*Limiter

// asked notes that a call has named a key by a text. Copies of a limiter share it.
type asked struct{ *atomic.Bool }

func (a asked) set() {
	if !a.Load() { // reading is faster where many processors do it
		a.Store(true)
	}
}

// charge asks the logs of a decision, whose answers are zero.
func (l *Limiter) charge(ctx context.Context, d *Decision) error {
	takes, answers := d.logs()
	for i, log := range d.plan.Logs {
		t := &takes[i]
		t.Plan, t.Cost, t.Mode, t.ID = log.StorePlan(), d.take.Cost, d.take.Mode, 0
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
	if d.fill(); d.takesSlots() {
		l.hold(ctx, d)
	}
	return nil
}

// hold notes which slots a decision has taken, until it is released. If requests of this process hold all of them
// already, the log has lost some, as in a Redis that was restarted: then the decision becomes a denial.
func (l *Limiter) hold(ctx context.Context, d *Decision) {
	var held []slots.Slot
	for i, log := range d.plan.Logs {
		if log.InFlight() {
			t := &d.more.takes[i]
			key := store.Key{Namespace: t.Key.Namespace, Identity: t.Key.Clone()}
			held = append(held, slots.Slot{Key: key, ID: t.ID, Plan: t.Plan, Degraded: d.Degraded})
		}
	}
	if held == nil {
		return
	}
	if d.more.held = l.slots.Hold(ctx, held); d.more.held == nil {
		l.denyHeld(ctx, d, held)
	}
}

// denyHeld makes d a denial, because requests of this process hold all slots. It gives back the units that were taken
// with them, except those of other algorithms.
func (l *Limiter) denyHeld(ctx context.Context, d *Decision, held []slots.Slot) {
	for i, log := range d.plan.Logs {
		t, a := &d.more.takes[i], &d.more.answers[i]
		a.Granted = 0
		switch {
		case log.InFlight():
			denySlots(log, a, int(held[0].Taken))
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
	d.answer = d.plan.Merge(d.more.answers, d.fitting(), d.take.Mode)
	d.Granted = 0
	d.fill()
}

// denySlots makes the answer of a log of slots a denial where the slots that are held use up a limit.
func denySlots(log *plan.Log, a *store.Answer, held int) {
	for n, limit := range log.Limits {
		a.State[n].Used = max(a.State[n].Used, held)
		if n < len(log.Limits)-log.Shadow && held >= limit.Quota {
			a.Allowed = false
			a.Denied |= 1 << n
		}
	}
}

// release gives the slots of a decision back.
func (l *Limiter) release(ctx context.Context, held *slots.Held) error {
	err := held.Release(ctx)
	for i := range held.Slots() {
		l.wake(&held.Slots()[i].Key)
	}
	return err
}

// wake wakes the first call that waits for a log to which something was given back.
func (l *Limiter) wake(log *store.Key) { l.queues.Wake(queueKeyOf(log)) }

// memorySlots are slots in this process's memory.
type memorySlots struct{ logs *memory.Store }

func (m memorySlots) Renew(_ context.Context, r *store.Renewal, _ []uint64) error {
	m.logs.Renew(r)
	return nil
}

func (m memorySlots) Release(_ context.Context, s *slots.Slot) error {
	m.logs.Settle(&store.Settlement{Key: s.Key, ID: s.ID})
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

// queueKey is a comparable store.Key. Limiters with the same policy name, and so the same log, have separate queues,
// because each has its own namespaces.
type queueKey struct {
	namespace *store.Namespace
	identity
}

func queueKeyOf(k *store.Key) queueKey { return queueKey{k.Namespace, k.Identity} }
