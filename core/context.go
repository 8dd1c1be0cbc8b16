package core

import "context"

// WithDecisionInContext passes the decision about each request that is served to its handler, which gets it by
// [DecisionFrom]: to show what is left, or to [Decision.Settle] what the request has cost after all. It costs some
// allocations a request, so it is not the default.
func WithDecisionInContext() Option {
	return once("WithDecisionInContext", func(c *config) {
		c.inContext = true
	})
}

type decisionKey struct{}

// DecisionFrom returns the decision about the request that is served with ctx, if its limiter has
// [WithDecisionInContext]: that of the innermost such limiter. ctx is the request's context: r.Context() of net/http
// and chi, c.Request.Context() of gin, c.Request().Context() of echo, and c.UserContext() of fiber.
func DecisionFrom(ctx context.Context) (d Decision, ok bool) {
	p, ok := ctx.Value(decisionKey{}).(*Decision)
	if !ok {
		return Decision{}, false
	}
	return *p, true
}

// For adapters: Context returns ctx with the decision for the handler, and whether the limiter asks for that.
func (d *Decision) Context(ctx context.Context) (with context.Context, asked bool) {
	if d.limiter == nil || !d.limiter.inContext {
		return ctx, false
	}
	own := *d
	return context.WithValue(ctx, decisionKey{}, &own), true
}
