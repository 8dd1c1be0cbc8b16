package core

import (
	"context"
	"errors"
	"time"

	"github.com/sashlimit/sash/core/adapter"
	"github.com/sashlimit/sash/core/event"
	"github.com/sashlimit/sash/core/internal/gate"
	"github.com/sashlimit/sash/core/store"
)

// WithObserver calls f with each [Event], before the request is answered. f runs on the request's goroutine, so it must
// be quick and must not block. The option may be given several times: all functions are called, in this order. A panic
// of f is logged, and the decision stands.
func WithObserver(f func(context.Context, Event)) Option {
	return func(c *config) {
		c.faults.add(f == nil, "WithObserver", "nil", noFunction, giveOne)
		c.gate.observers = append(c.gate.observers, f)
	}
}

// WithStoreObserver calls f after each call to a store outside the process, with how long it took: those of requests,
// and those that renew permits, probe whether the store answers again, or replay what was admitted without it. A
// [MemoryStore] is not such a store. f runs on the goroutine of the call, so it must be quick and must not block. The
// option may be given several times: all functions are called, in this order. A panic of f is dropped.
func WithStoreObserver(f func(context.Context, event.StoreCall)) Option {
	return func(c *config) {
		c.faults.add(f == nil, "WithStoreObserver", "nil", noFunction, giveOne)
		before := c.Guard.StoreCalls
		c.Guard.StoreCalls = func(ctx context.Context, call event.StoreCall) {
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

// event returns an event with the fields that all events of a request have.
func (l *Limiter) event(outcome event.Outcome, asked *gate.Asked, err error) Event {
	e := Event{
		Policy: l.policy(), Outcome: outcome, Mode: asked.Mode, Cost: asked.Cost, Key: asked.Own[0].Text, Err: err,
	}
	if asked.Borrowed || asked.Own[0].Addr.IsValid() {
		e.Key = asked.Own[0].Label()
	}
	if asked.Began != 0 {
		e.Took = time.Since(processStart) - asked.Began
	}
	return e
}

// report reports a decision to the observers, if there are any.
func (l *Limiter) report(ctx context.Context, asked *gate.Asked, d *Decision) {
	if l.observers != nil || d.result.ShadowErr != nil {
		l.tell(ctx, asked, d)
	}
}

func (l *Limiter) tell(ctx context.Context, asked *gate.Asked, d *Decision) {
	outcome := event.Denied
	switch {
	case d.Banned:
		outcome = event.Banned
	case d.Allowed:
		outcome = event.Allowed
	}
	e := l.event(outcome, asked, d.result.Err)
	e.Policy, e.Source, e.Decision, e.Shadow = d.Policy, d.result.Source, *d, d.shadow()
	e.refusedInShadow(asked)
	if asked.Borrowed {
		e.Decision.result.Keep() // the event may outlive the request
	}
	l.observe(ctx, &e)
	if err := d.result.ShadowErr; err != nil {
		l.shadowFailed(ctx, l.policy(), err)
	}
}

// pass reports a request that passes uncounted to the observers.
func (l *Limiter) pass(ctx context.Context, outcome event.Outcome, asked *gate.Asked, d *Decision) {
	if l.observers == nil {
		return
	}
	e := l.event(outcome, &gate.Asked{Mode: store.ModePeek, Began: asked.Began}, nil)
	e.Decision = *d
	if e.refusedInShadow(asked); e.Shadow != nil {
		e.Policy = e.Shadow.Policy
	}
	l.observe(ctx, &e)
}

// refusedInShadow makes the denial by a list of a rule in shadow what would have been decided.
func (e *Event) refusedInShadow(asked *gate.Asked) {
	if asked.Refused != "" {
		e.Shadow = &Decision{Policy: asked.Refused}
	}
}

// failed reports to the observers why there is no decision, and clears d. It returns err.
func (l *Limiter) failed(ctx context.Context, asked *gate.Asked, d *Decision, err error) error {
	if l.observers != nil {
		outcome := event.Failed
		switch {
		case errors.Is(err, ErrForbidden):
			outcome = event.Forbidden
		case errors.Is(err, ErrNoKey):
			outcome = event.NoKey
		}
		e := l.event(outcome, asked, err)
		if failed := (*gate.KeyError)(nil); errors.As(err, &failed) {
			e.Policy = failed.Policy
		}
		l.observe(ctx, &e)
	}
	*d = Decision{}
	return err
}

// shadowFailed reports to the observers why a shadow of a policy could not be tried out.
func (l *Limiter) shadowFailed(ctx context.Context, policy string, err error) {
	if l.observers != nil {
		e := l.event(event.ShadowFailed, new(gate.Asked), err)
		e.Policy = policy
		l.observe(ctx, &e)
	}
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
		l.refusals.Failed(ctx, l.policy(), what, err)
	}
}
