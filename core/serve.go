package core

import (
	"context"

	"github.com/sashlimit/sash/core/adapter"
	"github.com/sashlimit/sash/core/event"
	"github.com/sashlimit/sash/core/internal/gate"
)

// For adapters: Response returns nil unless a callback needs the status of the response.
func (d *Decision) Response() *adapter.Response {
	if d.served == nil {
		return nil
	}
	return &d.served.response
}

// Status implements [adapter.Asker].
func (s *served) Status(status int) { s.decision.limiter.refund(&s.decision, status) }

// refund calls the callback of WithRefund for a request that has been served, and gives its units back if the callback
// returns true.
func (l *Limiter) refund(d *Decision, status int) {
	request := d.served.response.Request()
	ctx := context.WithoutCancel(d.served.response.Context())
	back := false
	err := adapter.Guard(func() error {
		if back = l.refunds(request, status); back {
			return d.Undo(ctx)
		}
		return nil
	})
	if back || err != nil {
		outcome := event.Refunded
		if err != nil {
			outcome = event.RefundFailed
		}
		e := l.event(outcome, &gate.Asked{Cost: d.Granted, Mode: d.result.Mode}, err)
		if id := d.result.Identity(); id != nil {
			e.Key = id.Label()
		}
		e.Policy, e.Source, e.Decision = d.Policy, d.result.Source, *d
		e.Decision.served = nil
		l.observe(ctx, &e)
		l.panicked(ctx, "the function given to WithRefund has panicked", err) // the guard logs failures of the store
	}
}

// For adapters: Deferred is for frameworks in which work may go on after the handler has returned, such as a body that
// is streamed. It returns a function that ends what the decision holds, as [Decision.Release] does, or nil if it holds
// nothing. If Deferred is called while [Decision.Serve] runs the handler, Serve leaves that to the function.
func (d *Decision) Deferred() (release func()) {
	if !d.result.Holds() {
		return nil
	}
	d.result.Defer()
	held := d.result          // so that a decision that holds nothing is not moved to the heap
	return held.ReleaseServed // which does not refer to the framework's request
}

// For adapters: Serve runs the handler of an allowed request. It must be called for each request that [Limiter.Check]
// has allowed. handler returns the response's status, or 0 if that is not known yet; then Sent of [Decision.Response]
// sets it later. A panic is status 500 if Sent has not been called. When the handler has ended, in whatever way, Serve
// ends what the decision holds.
func (d *Decision) Serve(handler func() (status int)) {
	status, returned := 0, false
	defer func() {
		if d.result.Holds() && !d.result.IsDeferred() {
			d.result.ReleaseServed()
		}
		if d.served != nil {
			d.served.decision = *d
			d.served.response.End(status, returned, d.served)
		}
	}()
	status = handler()
	returned = true
}

// WithDecisionInContext passes the decision about each request that is served to its handler, which gets it by
// [DecisionFrom]: to show what is left, or to [Decision.Settle] what the request has cost after all. It costs some
// allocations a request, so it is not the default.
func WithDecisionInContext() Option {
	return option("WithDecisionInContext", func(c *config) {
		c.gate.inContext = true
	})
}

type decisionKey struct{}

// DecisionFrom returns the decision about the request that is served with ctx, if its limiter has
// [WithDecisionInContext]: that of the innermost such limiter. ctx is the request's context: r.Context() of net/http
// and chi, c.Request.Context() of gin, c.Request().Context() of echo, c.UserContext() of fiber v2 and c.Context() of
// fiber v3.
func DecisionFrom(ctx context.Context) (d Decision, ok bool) {
	p, ok := ctx.Value(decisionKey{}).(*Decision)
	if !ok {
		return Decision{}, false
	}
	return *p, true
}

// For adapters: Context returns ctx with what the handler and further limiters need to know of the decision, and
// whether there is anything.
func (d *Decision) Context(ctx context.Context) (with context.Context, asked bool) {
	if d.limiter == nil {
		return ctx, false
	}
	if asked = d.result.Holds(); asked {
		ctx = gate.Holding(ctx, d.limiter.engine)
	}
	if !d.limiter.inContext {
		return ctx, asked
	}
	own := *d
	return context.WithValue(ctx, decisionKey{}, &own), true
}
