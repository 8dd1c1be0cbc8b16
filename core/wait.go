package core

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/sashlimit/sash/core/internal/plan"
	"github.com/sashlimit/sash/core/internal/question"
	"github.com/sashlimit/sash/core/internal/queue"
	"github.com/sashlimit/sash/core/store"
)

// Wait takes one unit of key's quota as soon as one is available. Calls of one limiter that wait for the same key are
// served in order. So are calls with different keys while they wait for the same limit, which has a key of its own
// ([Limit.By]). They do not poll: the first of them sleeps until the instant when it can be admitted, or until this
// limiter gives units back ([Decision.Undo], [Decision.Settle], [Limiter.Reset]). Other users of the log, such as
// [Limiter.Allow] and other processes, compete for each unit. What other processes give back is seen at that instant.
//
// It is unknown when a permit of [InFlight] will be free. A call that waits for one is woken when this limiter gives
// one back ([Decision.Release], or the end of a handler). The first of those that wait for the same permits also looks
// after 50 ms to 1 s whether another process has given one back.
//
// Wait returns at once if ctx ends before that instant. The error then is [context.DeadlineExceeded], and the decision
// has the shortest possible wait. A wait that ends with ctx takes nothing, and is not counted as a denial under
// [WithCountDenied].
func (l *Limiter) Wait(ctx context.Context, key string) (d Decision, err error) {
	err = l.waitN(ctx, key, 1, &d)
	return d, err
}

// WaitN waits for cost units, and takes them all at once. It does not wait for a cost above a quota: the error is
// [ErrCostExceedsQuota].
func (l *Limiter) WaitN(ctx context.Context, key string, cost int) (d Decision, err error) {
	err = l.waitN(ctx, key, cost, &d)
	return d, err
}

// waitN fills in d, which must be zero. While a call waits, it is the only Decision on the stack, because the stack is
// most of the memory that a waiter takes.
func (l *Limiter) waitN(ctx context.Context, key string, cost int, d *Decision) error {
	if l == nil || l.store == nil {
		return configError("Wait", "no limiter", noLimiter, checkNew)
	}
	began := l.begin()
	given, err := l.wait(ctx, key, cost, d)
	if l.observers != nil {
		d.began, d.q.Take.Mode, d.q.Take.Cost = began, store.ModeCharge, cost
		if err != nil && d.q.Plan == nil {
			err = l.failed(ctx, d, err)
		} else {
			l.reported(ctx, d, nil)
		}
	}
	if !given {
		*d = Decision{}
	}
	return err
}

// wait fills in d, the last decision. It is given to the caller unless its context has ended or the store has failed.
func (l *Limiter) wait(ctx context.Context, key string, cost int, d *Decision) (given bool, err error) {
	if err = ctx.Err(); err != nil {
		return false, err
	}
	pl, err := l.planOf(ctx, key, &d.q.Take.Key.Identity)
	if err != nil {
		return false, err
	}
	if err = pl.NoUnnamed("cost"); err != nil {
		return false, err
	}
	known := pl
	if l.overrides != nil {
		if known, err = l.overridden(ctx, pl, d.q.Take.Key.Identity); err != nil {
			return false, err
		}
	}
	if cost < 1 || cost > known.Smallest { // waiting would not change that, unless an override has come meanwhile
		if err = l.decideNever(ctx, pl, cost, d); err != nil || d.limiter != nil {
			return true, err
		}
	}
	w, ahead := l.queues.Join(queueKey{l.namespace, d.q.Take.Key.Identity}, cost)
	defer w.Leave()
	if err = l.foresee(ctx, pl, known, w, ahead, d); err != nil {
		return true, err
	}
	w.Turn(ctx)
	for poll := minPoll; ; poll = min(2*poll, maxPoll) {
		if err = ctx.Err(); err != nil {
			return false, err
		}
		d.begin(w, cost, store.ModeCharge)
		if err = l.decide(ctx, nil, &l.prefixes, pl, false, d); err != nil {
			d.begin(w, 0, 0)
			return false, err
		}
		if d.Allowed {
			err = l.served(ctx, w, d)
			return err == nil, err
		}
		if d.never() { // an override has made the quota smaller
			return true, d.Err()
		}
		wait, err := d.line(ctx, w, poll)
		if err != nil {
			return true, err
		}
		if l.overrides != nil {
			wait = min(wait, maxPoll) // an override may come or go meanwhile
		}
		w.Sleep(ctx, wait)
	}
}

// waiter is a call of Wait.
type waiter = queue.Waiter[queueKey, *plan.Log]

// begin makes d ready for the next question of a waiter. The keys of its logs were read for the first one.
func (d *Decision) begin(w *waiter, cost int, mode store.Mode) {
	namespace, more := d.q.Take.Key.Namespace, d.q.More
	if d.limiter != nil && d.limiter.overrides != nil {
		namespace, more = nil, nil // an override may have changed the logs
	}
	*d = Decision{q: question.Question{More: more}}
	d.q.Take.Key = store.Key{Namespace: namespace, Identity: w.Key.identity}
	if d.q.Take.Cost, d.q.Take.Mode = cost, mode; more != nil {
		clear(more.Answers)
	}
}

// decideNever decides about a cost that no wait helps. If one does after all, d is as before.
func (l *Limiter) decideNever(ctx context.Context, pl *plan.Plan, cost int, d *Decision) error {
	id := d.q.Take.Key.Identity
	d.q.Take.Cost, d.q.Take.Mode = cost, store.ModePeek
	if err := l.decide(ctx, nil, &l.prefixes, pl, false, d); err != nil {
		return err
	}
	if err := d.Err(); err != nil || d.q.Plan == nil {
		return err
	}
	*d = Decision{}
	d.q.Take.Key.Identity = id
	return nil
}

// served notes that the waiter was admitted. If its context has ended, it gives back what was taken.
func (l *Limiter) served(ctx context.Context, w *waiter, d *Decision) error {
	if err := ctx.Err(); err != nil {
		err = errors.Join(err, d.takeBack(context.WithoutCancel(ctx)))
		d.begin(w, 0, 0)
		return err
	}
	w.Admitted(d.room(w))
	return nil
}

// Calls that wait for a permit look for one at intervals of minPoll to maxPoll, less up to half of it at random.
const (
	minPoll = 100 * time.Millisecond
	maxPoll = time.Second
)

// line puts a waiter that was denied into the line of the log that it waits for. It returns for how long to sleep, or
// an error if ctx ends before the waiter can be admitted.
func (d *Decision) line(ctx context.Context, w *waiter, poll time.Duration) (wait time.Duration, err error) {
	key, log := d.awaited(w)
	wait = d.RetryAfter
	if log != nil {
		wait = d.q.Answer.Retry
	}
	if log != nil && log.InFlight() {
		wait = poll/2 + rand.N(poll/2)
	} else if err = tooLong(ctx, wait); err != nil {
		return 0, err
	} else if lease := d.limiter.lease; lease > 0 {
		wait = min(wait, lease) // units that were booked may have come back
	}
	w.Line(key, log)
	return wait, nil
}

// awaited returns the log that a denied request waits for: of those that have denied it, the one with the longest wait.
// Logs of permits have no wait; of these it is the one in whose line the waiter is already. One log is enough, because
// the request cannot be admitted before that one has room. During a ban it is the log of the waiter's key.
func (d *Decision) awaited(w *waiter) (key queueKey, log *plan.Log) {
	key = w.Key
	if d.refused() {
		return key, nil
	}
	longest := time.Duration(-1)
	takes, answers := d.q.Asked()
	for i := range takes {
		l, a := d.q.Logs()[i], &answers[i]
		one, wait := queueKeyOf(&takes[i].Key), a.Retry
		if l.InFlight() {
			wait = 0 // which is shorter than that of any window
		}
		if !a.Allowed && (wait > longest || wait == longest && w.InLine(one, l)) {
			key, log, longest = one, l, wait
		}
	}
	return key, log
}

// room returns for how many waiters as w the log has room in whose line w was, after w was admitted.
func (d *Decision) room(w *waiter) int {
	if d.q.Plan == nil { // nothing was counted, in an outage
		return 1
	}
	takes, _ := d.q.Asked()
	for i := range takes {
		t, log := &takes[i], d.q.Logs()[i]
		if !w.InLine(queueKeyOf(&t.Key), log) {
			continue
		}
		left := MaxQuota
		for _, limit := range log.At[:log.Deciding()] {
			left = min(left, d.q.Left(limit))
		}
		if log.InFlight() {
			return left
		}
		return (left + t.Cost - 1) / t.Cost
	}
	return 0
}

// foresee returns an error if ctx ends before w can be admitted after the waiters ahead of it, and fills in d. It
// computes the shortest wait that is possible if none of those gives up, so a wait can end with ctx although foresee
// returned no error. known is the plan with overrides.
func (l *Limiter) foresee(
	ctx context.Context, pl, known *plan.Plan, w *waiter, ahead int, d *Decision,
) (err error) {
	if _, ends := ctx.Deadline(); !ends {
		return nil
	}
	for ahead > 0 {
		units, later, by := known.Spread(ahead + w.Cost)
		d.begin(w, units, store.ModePeek)
		if d.q.More == nil {
			d.q.Price(pl, nil, 0) // for what the call takes, and not a unit of each, as Peek
		}
		err = l.decide(ctx, nil, &l.prefixes, pl, false, d)
		if errors.As(err, new(*ConfigError)) || err == nil && (d.q.Plan == nil || d.Allowed && later == 0) {
			break // the store cannot take so much at once, or counts nothing now, or has room for all
		}
		if err != nil {
			d.begin(w, 0, 0)
			return err
		}
		if d.Allowed {
			d.q.Answer.Allowed = false
			d.Allowed, d.Violated = false, known.Names[by:by+1:by+1]
		}
		d.RetryAfter += later
		err = tooLong(ctx, d.RetryAfter)
		if err == nil {
			break
		}
		// Waiters that have left the queue meanwhile may be in the log already, and would count twice.
		now := w.Ahead()
		if now == ahead {
			return err
		}
		ahead = now
	}
	d.begin(w, 0, 0)
	return nil
}

// tooLong returns an error if ctx ends within the wait.
func tooLong(ctx context.Context, wait time.Duration) error {
	if end, ok := ctx.Deadline(); ok && time.Until(end) <= wait {
		return fmt.Errorf("sash: the wait would be %v, but the context ends earlier: %w",
			wait.Round(time.Microsecond), context.DeadlineExceeded)
	}
	return nil
}
