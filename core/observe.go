package core

import (
	"context"
	"errors"
	"time"

	"github.com/sashlimit/sash/core/adapter"
	"github.com/sashlimit/sash/core/event"
	"github.com/sashlimit/sash/core/store"
)

// WithObserver has f called with each [Event], before the request is answered. It runs on the request's goroutine: be
// quick, and do not block. It may be given several times: all are called, in this order.
func WithObserver(f func(context.Context, Event)) Option {
	return func(c *config) {
		if f == nil {
			c.fault("WithObserver", "nil", "give it a function, or leave the option out")
			return
		}
		c.observers = append(c.observers, f)
	}
}

// Event is what an observer is told. Of each request, and of each call of [Limiter.Allow], Peek, Record and Wait, there is
// exactly one whose Outcome is that of a decision; others are told beside it ([event.Outcome]). A counter by Policy and
// Outcome needs no special cases.
//
// Printed, logged or written as JSON it leaves out Key and the text of Err.
type Event struct {
	Policy   string // its name
	Outcome  event.Outcome
	Source   event.Source  // what has decided
	Mode     store.Mode    // what was asked, such as store.ModePeek
	Cost     int           // units asked for
	Took     time.Duration // from the beginning until the decision; of Wait, with the wait
	Decision Decision      // the zero Decision if there is none
	Shadow   *Decision     // what the policy of [WithShadow] would have said, or nil
	Key      string        `json:"-"` // whose quota, as the key found it. It may be personal: think before you log it
	Err      error         `json:"-"` // why there is no decision, or why it is Degraded, or nil
}

// NearLimit reports whether a request was allowed and leaves less than a fifth of a limit's quota.
func (e *Event) NearLimit() bool {
	d := &e.Decision
	if e.Outcome != event.Allowed || d.plan == nil {
		return false
	}
	for i, limit := range d.plan.limits {
		if 5*d.left(i) < limit.Quota {
			return true
		}
	}
	return false
}

var processStart = time.Now()

// begin returns the time for Event.Took, or 0 if there are no observers.
func (l *Limiter) begin() time.Duration {
	if l.observers == nil {
		return 0
	}
	return time.Since(processStart)
}

// event returns what is known of every event about d.
func (l *Limiter) event(outcome event.Outcome, d *Decision, err error) Event {
	e := Event{
		Policy: l.space.Policy(), Outcome: outcome, Source: d.source, Mode: d.mode, Cost: d.cost,
		Key: d.key.Label(), Err: err,
	}
	if d.began != 0 {
		e.Took = time.Since(processStart) - d.began
	}
	return e
}

// tell tells the observers of a decision.
func (l *Limiter) tell(ctx context.Context, d *Decision) error {
	outcome := event.Denied
	switch {
	case d.Banned:
		outcome = event.Banned
	case d.Allowed:
		outcome = event.Allowed
	}
	e := l.event(outcome, d, d.why)
	e.Decision = *d
	e.Decision.key.Identity = d.key.Clone() // which outlives the request
	if d.plan != nil && d.plan.shadow != nil && !d.Banned {
		e.Shadow = d.shadow()
	}
	err := l.observe(ctx, &e)
	if err != nil {
		*d = Decision{}
	}
	return err
}

// pass tells the observers of a request that is allowed uncounted.
func (l *Limiter) pass(ctx context.Context, outcome event.Outcome, d *Decision) error {
	d.Allowed = true
	if l.observers == nil {
		return nil
	}
	d.mode, d.cost = store.ModePeek, 0
	e := l.event(outcome, d, nil)
	e.Decision = *d
	return l.observe(ctx, &e)
}

// failed tells the observers why there is no decision, and leaves none.
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
		if panicked := l.observe(ctx, &e); panicked != nil {
			err = errors.Join(err, panicked)
		}
	}
	*d = Decision{}
	return err
}

// observe calls the observers. All hear, also if one of them panics.
func (l *Limiter) observe(ctx context.Context, e *Event) (err error) {
	for _, observer := range l.observers {
		err = errors.Join(err, adapter.Guard(func() error {
			observer(ctx, *e)
			return nil
		}))
	}
	return err
}
