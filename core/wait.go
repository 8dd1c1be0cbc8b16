package core

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/sashlimit/sash/core/internal/queue"
	"github.com/sashlimit/sash/core/store"
)

// Wait takes one unit of key's quota as soon as one is available. Calls of one limiter that wait for the same key are
// served in order. They do not poll: the first of them sleeps until the instant when it can be admitted, or until this
// limiter gives units back ([Decision.Undo], [Decision.Settle], [Limiter.Reset]). Other users of the log, such as
// [Limiter.Allow] and other processes, compete for each unit. What other processes give back is seen at that instant.
//
// Nobody knows when a slot of [InFlight] will be free. A call that waits for one is woken when this limiter gives one
// back ([Decision.Release], or the end of a handler), and looks after 50 ms to 1 s whether another process has.
//
// Wait returns at once if ctx ends before that instant. The error then is [context.DeadlineExceeded], and the decision
// tells the shortest possible wait. A wait that ends with ctx takes nothing, and is not counted as a denial under
// [WithCountDenied].
func (l *Limiter) Wait(ctx context.Context, key string) (Decision, error) {
	return l.WaitN(ctx, key, 1)
}

// WaitN waits for cost units, and takes them all at once. It does not wait for a cost above a quota: the error is
// [ErrCostExceedsQuota].
func (l *Limiter) WaitN(ctx context.Context, key string, cost int) (d Decision, err error) {
	if l == nil || l.store == nil {
		return Decision{}, &ConfigError{
			Option: "Wait", Value: "no limiter", Reason: "make it with core.New and look at its error",
		}
	}
	began := l.begin()
	last, d, err := l.wait(ctx, key, cost)
	if l.observers == nil {
		return d, err
	}
	last.began, last.mode, last.cost = began, store.ModeCharge, cost
	if err != nil && last.plan == nil {
		return d, l.failed(ctx, &last, err)
	}
	if panicked := l.notify(ctx, &last); panicked != nil {
		return Decision{}, errors.Join(err, panicked)
	}
	return d, err
}

// wait is WaitN without the observers. They get last, the last decision, even if the caller gets none because its
// context has ended.
func (l *Limiter) wait(ctx context.Context, key string, cost int) (last, d Decision, err error) {
	if err = ctx.Err(); err != nil {
		return last, d, err
	}
	if err = l.identityOf(key, &last.key.Identity); err != nil {
		return last, d, err
	}
	plan, err := l.planFor(ctx)
	if err != nil {
		return last, d, err
	}
	id := last.key.Identity
	if cost < 1 || cost > plan.alone.Smallest() { // waiting would not change that
		last.cost, last.mode = cost, store.ModePeek
		if err = l.decide(ctx, nil, plan, false, &last); err == nil {
			err = last.Err()
		}
		return last, last, err
	}
	w, ahead := l.queues.Join(queueKey{l.namespace, id}, cost)
	defer w.Leave()
	if last, err = l.foresee(ctx, plan, w, ahead); err != nil {
		return last, last, err
	}
	last = Decision{key: store.Key{Identity: id}}
	select {
	case <-w.First():
	case <-ctx.Done():
	}
	for poll := minPoll; ; poll = min(2*poll, maxPoll) {
		if err := ctx.Err(); err != nil {
			return last, Decision{}, err
		}
		last = Decision{key: store.Key{Identity: id}, cost: cost, mode: store.ModeCharge}
		if err := l.decide(ctx, nil, plan, false, &last); err != nil {
			return Decision{key: last.key}, Decision{}, err
		}
		if last.Allowed {
			if ctx.Err() == nil {
				return last, last, nil
			}
			err := errors.Join(ctx.Err(), last.takeBack(context.WithoutCancel(ctx)))
			return Decision{key: last.key}, Decision{}, err
		}
		wait, slot := last.RetryAfter, last.awaitsSlot() && !last.Banned
		if slot {
			wait = last.answer.Retry // of other limits
		}
		if err := tooLong(ctx, wait); err != nil && !(slot && wait == 0) {
			return last, last, err
		}
		if slot {
			wait = max(wait, poll/2+rand.N(poll/2))
		}
		w.Sleep(ctx, wait)
	}
}

// Calls that wait for a slot look for one at intervals of minPoll to maxPoll, less up to half of it at random.
const (
	minPoll = 100 * time.Millisecond
	maxPoll = time.Second
)

// foresee returns an error if ctx ends before w can be admitted after the waiters ahead of it. It computes the shortest
// wait that is possible if none of those gives up, so a wait can end with ctx although foresee returned no error.
func (l *Limiter) foresee(
	ctx context.Context, plan *plan, w *queue.Waiter[queueKey], ahead int,
) (d Decision, err error) {
	if _, ends := ctx.Deadline(); !ends {
		return Decision{}, nil
	}
	for ahead > 0 {
		units, later, by := plan.spread(ahead + w.Cost)
		d = Decision{key: store.Key{Identity: w.Key.identity}, cost: units, mode: store.ModePeek}
		err = l.decide(ctx, nil, plan, false, &d)
		if errors.As(err, new(*ConfigError)) || err == nil && d.plan == nil {
			break // the store cannot take so much at once, or counts nothing now
		}
		if err != nil {
			return Decision{key: d.key}, err
		}
		if d.Allowed {
			d.Allowed, d.Violated = false, plan.names[by:by+1:by+1]
		}
		d.RetryAfter += later
		err = tooLong(ctx, d.RetryAfter)
		if err == nil {
			break
		}
		// Waiters that have left the queue meanwhile may be in the log already, and would count twice.
		now := w.Ahead()
		if now == ahead {
			return d, err
		}
		ahead = now
	}
	return Decision{}, nil
}

// spread returns when the last of units that wait in a queue can be admitted at the earliest: later than the last of
// the first of them, and which limit causes it. A unit is admitted when the unit one quota before it leaves the window,
// and so one window after that was admitted.
func (p *plan) spread(units int) (first int, later time.Duration, by int) {
	first = units
	for i, limit := range p.limits {
		if limit.inFlight || limit.algorithm != SlidingLog {
			continue
		}
		full := (units - 1) / limit.Quota
		if wait := time.Duration(full) * limit.Window; wait > later {
			first, later, by = units-full*limit.Quota, wait, i
		}
	}
	return min(first, p.alone.Smallest()), later, by
}

// tooLong returns an error if ctx ends within the wait.
func tooLong(ctx context.Context, wait time.Duration) error {
	if end, ok := ctx.Deadline(); ok && time.Until(end) <= wait {
		return fmt.Errorf("sash: there is a wait of %v, and the context ends before: %w",
			wait.Round(time.Microsecond), context.DeadlineExceeded)
	}
	return nil
}
