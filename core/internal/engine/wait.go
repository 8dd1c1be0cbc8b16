package engine

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/sashlimit/sash/core/internal/queue"
	"github.com/sashlimit/sash/core/store"
)

// wake wakes the first request that waits for a log, since something was given back. Engines with the same policy have
// the same logs, but separate lines.
func (e *Engine) wake(k *store.Key, l *store.Limit) {
	e.lines.Wake(logID{k.Namespace, k.Identity, l.Log})
}

// wakeKey wakes the first requests that wait for logs of a key.
func (e *Engine) wakeKey(k *store.Key) {
	e.lines.WakeAll(func(l logID) bool { return l.namespace == k.Namespace && l.identity == k.Identity })
}

// Requests that wait for a permit look for one at intervals of minPoll to maxPoll, less up to half of it at random.
const (
	minPoll = 100 * time.Millisecond
	maxPoll = time.Second
)

// wait decides about a request that waits until it is admitted. Requests that wait for a log have a line, of which only
// the first asks: when its wait is over, or when something is given back. A request that another log denies goes to the
// end of the line of that one. A denial does not count towards a ban.
//
// r is the last decision. The error is [context.DeadlineExceeded] as soon as the request's own wait is known to
// last longer than ctx; what those before it take is not foreseen. r is zero if nothing was decided, since ctx has
// ended or the store has failed. A cost that never fits is a decision at once. What is tried out does not wait: it is
// asked once the request is admitted.
func (e *Engine) wait(ctx context.Context, set *Set, a *Ask, r *Result) error {
	alone := *a
	alone.Shadow = nil
	err := e.waitInLine(ctx, set, &alone, r)
	if err == nil && r.Allowed && a.Shadow != nil {
		e.tryOut(ctx, a, r)
	}
	return err
}

func (e *Engine) waitInLine(ctx context.Context, set *Set, a *Ask, r *Result) (err error) {
	if err = ctx.Err(); err != nil {
		return err
	}
	w := e.lines.Join(e.linesOf(set, a)...)
	defer w.Leave()
	if !w.IsFirst() {
		if done, err := e.foresee(ctx, set, a, r); done {
			return err
		}
		if err = w.Sleep(ctx, 0); err != nil {
			*r = Result{}
			return err
		}
	}
	for poll := minPoll; ; poll = min(2*poll, maxPoll) {
		*r = Result{}
		if err = e.decide(ctx, set, a, r); err != nil || r.Never {
			return err
		}
		if r.Allowed {
			return r.served(ctx)
		}
		if err = e.sleep(ctx, w, r, poll); err != nil {
			return err
		}
	}
}

// linesOf returns the lines of the logs of a request.
func (e *Engine) linesOf(set *Set, a *Ask) []logID {
	all := make([]logID, 0, len(set.Limits))
	for i := range set.Limits {
		if l := &set.Limits[i]; a.cost(l) > 0 {
			all = append(all, logID{l.key.Namespace, a.Identities[l.Key].Clone(), l.Log()})
		}
	}
	return append(all, logID{e.own.Namespace, store.Identity{}, "none"})
}

// foresee looks whether a request that is not the first of its line need not wait: since it never fits, or its own wait
// lasts longer than ctx.
func (e *Engine) foresee(ctx context.Context, set *Set, a *Ask, r *Result) (done bool, err error) {
	if _, ends := ctx.Deadline(); !ends && !a.neverFits(set) {
		return false, nil
	}
	peek := *a
	peek.Mode = store.ModePeek
	if err = e.decide(ctx, set, &peek, r); err != nil || r.Allowed {
		return err != nil, err
	}
	_, wait, _ := r.awaited()
	err = tooLong(ctx, wait)
	return err != nil || r.Never, err
}

// served gives back what was taken if the caller has left.
func (r *Result) served(ctx context.Context) error {
	err := ctx.Err()
	if err != nil {
		err = errors.Join(err, r.Undo(context.WithoutCancel(ctx)))
		*r = Result{}
	}
	return err
}

// sleep puts a request that was denied into the line of the log that it waits for, until it is to ask again.
func (e *Engine) sleep(ctx context.Context, w *queue.Waiter[logID], r *Result, poll time.Duration) error {
	line, wait, permit := r.awaited()
	if err := tooLong(ctx, wait); err != nil {
		return err
	}
	if permit {
		wait = poll/2 + rand.N(poll/2)
	} else if e.config.Guard.Lease > 0 {
		wait = min(wait, e.config.Guard.Lease) // units that were taken ahead may have come back
	}
	if e.overrides != nil {
		wait = min(wait, maxPoll) // an override may come or go meanwhile
	}
	if w.Move(line) && w.IsFirst() {
		return ctx.Err() // something may have been given back before
	}
	err := w.Sleep(ctx, wait)
	if err != nil {
		*r = Result{}
	}
	return err
}

// awaited returns the line of the log that a denied request waits for, and for how long: of those that have denied it
// the one with the longest wait. Logs of permits have none, since it is unknown when a request ends.
func (r *Result) awaited() (line logID, wait time.Duration, permit bool) {
	var by *store.Take
	for i := range r.Set.Limits {
		if t, a := r.of(i); t != nil && a.Known && !a.Allowed && (by == nil || a.Retry > wait) {
			by, wait = t, a.Retry
		}
	}
	if by == nil { // a ban or an override has denied
		return logID{r.engine.own.Namespace, r.Identity().Clone(), "refused"}, r.Retry, false
	}
	if permit = by.Limit.Permits; permit {
		wait = 0
	}
	return logID{by.Key.Namespace, by.Key.Identity.Clone(), by.Limit.Log}, wait, permit
}

// tooLong returns an error if ctx ends within the wait.
func tooLong(ctx context.Context, wait time.Duration) error {
	if end, ok := ctx.Deadline(); ok && time.Until(end) <= wait {
		return fmt.Errorf("sash: the wait would be %v, but the context ends earlier: %w",
			wait.Round(time.Microsecond), context.DeadlineExceeded)
	}
	return nil
}
