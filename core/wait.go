package core

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// Wait takes one unit of key's quota, as soon as there is one. Callers of one limiter wait for a key in
// the order in which they came, and sleep until the very instant when the next of them may pass, or until this limiter gives
// units back ([Decision.Undo], [Decision.Settle], [Limiter.Reset]): nobody polls. Others who share the log, such as
// [Limiter.Allow] and other processes, compete for each unit, and what other processes give back is seen at that instant.
//
// It returns at once when ctx does not live beyond that instant; the error then is [context.DeadlineExceeded], and
// the decision says how long it would have been, at least. A wait that ends with ctx leaves no trace. Under
// [WithCountDenied] waiting counts as no try.
func (l *Limiter) Wait(ctx context.Context, key string) (Decision, error) {
	return l.WaitN(ctx, key, 1)
}

// WaitN waits for cost units, which it takes all at once. For a cost above a quota it does not wait: the
// error is [ErrCostExceedsQuota].
func (l *Limiter) WaitN(ctx context.Context, key string, cost int) (d Decision, err error) {
	if l == nil || l.store == nil {
		return Decision{}, &ConfigError{Option: "Wait", Value: "no limiter", Reason: "make it with core.New and look at its error"}
	}
	if err := ctx.Err(); err != nil {
		return Decision{}, err
	}
	if err = l.named(key, &d.key.identity); err != nil {
		err = l.failed(ctx, &d, err)
		return d, err
	}
	plan, err := l.planFor(ctx)
	if err != nil {
		err = l.failed(ctx, &d, err)
		return d, err
	}
	who := d.key.identity
	if cost < 1 || cost > plan.smallest() { // no turn would change that
		if err = l.decide(ctx, plan, cost, ModePeek, false, &d); err == nil {
			err = d.Err()
		}
		return d, err
	}
	t, ahead := l.queues.join(queueKey{l.space, who}, cost)
	defer l.queues.leave(t)
	if d, err := l.foresee(ctx, plan, &who, t, ahead); err != nil {
		return d, err
	}
	select {
	case <-t.come:
	case <-ctx.Done():
	}
	for {
		if err := ctx.Err(); err != nil {
			return Decision{}, err
		}
		d = Decision{key: StorageKey{identity: who}}
		if err := l.decide(ctx, plan, cost, ModeCharge, false, &d); err != nil {
			return d, err
		}
		if d.Allowed {
			if ctx.Err() == nil {
				return d, nil
			}
			return Decision{}, errors.Join(ctx.Err(), d.Undo(context.WithoutCancel(ctx)))
		}
		if err := tooLong(ctx, d.RetryAfter); err != nil {
			return d, err
		}
		t.sleep(ctx, d.RetryAfter)
	}
}

// foresee refuses a turn whose context ends before it can have its units behind those ahead of it. What it knows is the
// least that this can take, unless one of those gives up; so it does not foresee all.
func (l *Limiter) foresee(ctx context.Context, plan *plan, who *identity, t *turn, ahead int) (d Decision, err error) {
	if _, ends := ctx.Deadline(); !ends {
		return Decision{}, nil
	}
	for ahead > 0 {
		units, later, by := plan.spread(ahead + t.cost)
		d = Decision{key: StorageKey{identity: *who}}
		err = l.decide(ctx, plan, units, ModePeek, false, &d)
		if errors.As(err, new(*ConfigError)) || err == nil && d.plan == nil {
			break // the store cannot be asked for so much at once, or nothing is counted now
		}
		if err != nil {
			return d, err
		}
		if d.Allowed {
			d.Allowed, d.Violated = false, plan.names[by:by+1:by+1]
		}
		d.RetryAfter += later
		err = tooLong(ctx, d.RetryAfter)
		if err == nil {
			break
		}
		// Those who have left the queue meanwhile may be in the log already, and would count twice.
		now := l.queues.ahead(t)
		if now == ahead {
			return d, err
		}
		ahead = now
	}
	return Decision{}, nil
}

// smallest is the smallest quota.
func (p *plan) smallest() int {
	q := p.limits[0].Quota
	for i := range p.limits {
		q = min(q, p.limits[i].Quota)
	}
	return q
}

// spread says when the last of so many units, taken in turn, can pass at the earliest: later than the last of the first
// few. A unit passes when the one that is a quota before it has left, which is a window after that one has passed.
func (p *plan) spread(units int) (first int, later time.Duration, by int) {
	first = units
	for i, limit := range p.limits {
		full := (units - 1) / limit.Quota
		if wait := time.Duration(full) * limit.Window; wait > later {
			first, later, by = units-full*limit.Quota, wait, i
		}
	}
	return min(first, p.smallest()), later, by
}

// tooLong is an error if ctx will have ended after so long a wait.
func tooLong(ctx context.Context, wait time.Duration) error {
	if end, ok := ctx.Deadline(); ok && time.Until(end) <= wait {
		return fmt.Errorf("sash: there is a wait of %v, and the context ends before: %w", wait.Round(time.Microsecond), context.DeadlineExceeded)
	}
	return nil
}

// queues are who waits for which key.
type queues struct {
	mu sync.Mutex
	of map[queueKey]*queue
}

// queueKey is a StorageKey that can be compared. A policy that shares the name, and so the log, has queues of its own.
type queueKey struct {
	space *space
	identity
}

// queue is a list of turns: the first of them asks the store, the others wait until it has left.
type queue struct {
	first, last *turn
	units       int // that all of them want
}

type turn struct {
	key        queueKey
	cost       int
	come       chan struct{} // closed when it is the first
	wake       chan struct{} // has one when something has been given back since
	prev, next *turn
	asleep     atomic.Bool // the first: it is not asking the store, so nothing of it is in the log
}

func (t *turn) sleep(ctx context.Context, d time.Duration) {
	t.asleep.Store(true)
	defer t.asleep.Store(false)
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-t.wake:
	case <-ctx.Done():
	}
}

// join takes a place in the queue for key, behind so many units of others.
func (q *queues) join(key queueKey, cost int) (t *turn, ahead int) {
	t = &turn{key: key, cost: cost, come: make(chan struct{}), wake: make(chan struct{}, 1)}
	q.mu.Lock()
	defer q.mu.Unlock()
	line := q.of[t.key]
	if line == nil {
		if q.of == nil {
			q.of = make(map[queueKey]*queue)
		}
		line = &queue{first: t}
		q.of[t.key] = line
		close(t.come)
	} else {
		t.prev, line.last.next = line.last, t
	}
	ahead = line.units
	line.last = t
	line.units += cost
	return t, ahead
}

func (q *queues) leave(t *turn) {
	q.mu.Lock()
	defer q.mu.Unlock()
	line := q.of[t.key]
	line.units -= t.cost
	switch {
	case t.next != nil:
		t.next.prev = t.prev
	case t.prev != nil:
		line.last = t.prev
	default:
		delete(q.of, t.key)
	}
	switch {
	case t.prev != nil:
		t.prev.next = t.next
	case t.next != nil:
		line.first = t.next
		close(t.next.come)
	}
}

// wake has the first of a queue ask again.
func (q *queues) wake(key *StorageKey) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if line := q.of[queueKey{key.space, key.identity}]; line != nil {
		select {
		case line.first.wake <- struct{}{}:
		default:
		}
	}
}

// ahead is how many units those before t want that are surely not in the log.
func (q *queues) ahead(t *turn) (units int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for other := t.prev; other != nil; other = other.prev {
		if other.prev != nil || other.asleep.Load() {
			units += other.cost
		}
	}
	return units
}
