package core

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/sashlimit/sash/core/adapter"
	"github.com/sashlimit/sash/core/event"
	"github.com/sashlimit/sash/core/store"
)

// WithObserver calls f with each [Event], before the request is answered. f runs on the request's goroutine, so it must
// be quick and must not block. The option may be given several times: all functions are called, in this order. A panic
// of f is logged, and the decision stands.
func WithObserver(f func(context.Context, Event)) Option {
	return func(c *config) {
		c.faults.add(f == nil, "WithObserver", "nil", noFunction, giveOne)
		c.observers = append(c.observers, f)
	}
}

// WithStoreObserver calls f after each call to a store outside the process, with how long it took: those of requests,
// and those that renew permits, probe whether the store answers again, or replay what was admitted without it. A
// [MemoryStore] is not such a store. f runs on the goroutine of the call, so it must be quick and must not block. The
// option may be given several times: all functions are called, in this order. A panic of f is dropped.
func WithStoreObserver(f func(context.Context, event.StoreCall)) Option {
	return func(c *config) {
		c.faults.add(f == nil, "WithStoreObserver", "nil", noFunction, giveOne)
		before := c.guard.StoreCalls
		c.guard.StoreCalls = func(ctx context.Context, call event.StoreCall) {
			if before != nil {
				before(ctx, call)
			}
			adapter.Guard(func() error { //nolint:errcheck // a request does not fail for it
				f(ctx, call)
				return nil
			})
		}
	}
}

var processStart = time.Now()

// begin returns the time for Event.Took, or 0 if there are no observers.
func (l *Limiter) begin() time.Duration {
	if l.observers == nil {
		return 0
	}
	return time.Since(processStart)
}

// event returns an event with the fields that all events about d have.
func (l *Limiter) event(outcome event.Outcome, d *Decision, err error) Event {
	policy := l.namespace.Policy()
	if d.limiter != nil {
		policy = cmp.Or(d.Policy, d.policyName()) // the former is known also if nothing was counted, in an outage
	}
	e := Event{
		Policy: policy, Outcome: outcome, Source: d.source, Mode: d.q.Take.Mode, Cost: d.q.Take.Cost,
		Key: d.q.Take.Key.Text, Err: err,
		life: &l.life,
	}
	if d.borrowed || d.q.Take.Key.Addr.IsValid() {
		e.Key = d.q.Take.Key.Label()
	}
	if d.began != 0 {
		e.Took = time.Since(processStart) - d.began
	}
	return e
}

// reported reports a decision to the observers, or err if there is none. It returns err.
func (l *Limiter) reported(ctx context.Context, d *Decision, err error) error {
	if err == nil && l.observers == nil {
		return nil
	}
	return l.report(ctx, d, nil, err)
}

// report is separate so that reported is short enough to be inlined.
//
// tried is what rules in shadow would have decided by their deny lists, or nil.
func (l *Limiter) report(ctx context.Context, d, tried *Decision, err error) error {
	if err != nil {
		return l.failed(ctx, d, err)
	}
	outcome := event.Denied
	switch {
	case d.Banned:
		outcome = event.Banned
	case d.Allowed:
		outcome = event.Allowed
	}
	l.notify(ctx, outcome, d, tried)
	return nil
}

// pass allows a request uncounted and reports that to the observers. tried is as in report.
func (l *Limiter) pass(ctx context.Context, outcome event.Outcome, d, tried *Decision) error {
	d.Allowed, d.q.Take.Mode, d.q.Take.Cost = true, store.ModePeek, 0
	l.notify(ctx, outcome, d, tried)
	return nil
}

// notify reports a decision to the observers. tried is as in report.
func (l *Limiter) notify(ctx context.Context, outcome event.Outcome, d, tried *Decision) {
	if l.observers == nil {
		return
	}
	e := l.event(outcome, d, d.storeErr)
	e.Decision = *d
	if d.borrowed || d.q.More != nil {
		e.Decision.cloneKeys() // the event may outlive the request
	}
	switch {
	case tried != nil:
		if e.Shadow = tried; d.limiter == nil { // no limit was asked
			e.Policy = tried.Policy
		}
	case d.q.Plan != nil && d.q.Plan.Shadow != nil && !d.refused():
		e.Shadow = d.shadow()
	}
	l.observe(ctx, &e)
	if d.q.More != nil && d.q.More.Unread != nil && !errors.Is(d.q.More.Unread, ErrNoKey) {
		failed := l.event(event.ShadowFailed, new(Decision), d.q.More.Unread)
		l.observe(ctx, &failed)
	}
}

// failed reports to the observers why there is no decision, and clears d.
func (l *Limiter) failed(ctx context.Context, d *Decision, err error) error {
	if l.observers != nil {
		outcome := event.Failed
		switch {
		case errors.Is(err, ErrForbidden):
			outcome = event.Forbidden
		case errors.Is(err, ErrNoKey):
			outcome = event.NoKey
		}
		e := l.event(outcome, d, err)
		if failed := (*limitKeyError)(nil); errors.As(err, &failed) && failed.policy != "" {
			e.Policy = failed.policy
		}
		l.observe(ctx, &e)
	}
	*d = Decision{}
	return err
}

// observe calls all observers, even if one of them panics. A decision stands whatever observers do.
func (l *Limiter) observe(ctx context.Context, e *Event) {
	for _, observer := range l.observers {
		err := adapter.Guard(func() error {
			observer(ctx, *e)
			return nil
		})
		l.panicked(ctx, "an observer has panicked", err)
	}
}

// panicked logs a panic of a callback that refuses no request. An err without an [adapter.PanicError] is not logged.
func (l *Limiter) panicked(ctx context.Context, what string, err error) {
	if err != nil && errors.As(err, new(*adapter.PanicError)) {
		l.refusals.Failed(ctx, l.namespace.Policy(), what, err)
	}
}
