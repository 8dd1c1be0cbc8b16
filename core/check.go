package core

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/sashlimit/sash/core/adapter"
	"github.com/sashlimit/sash/core/event"
	"github.com/sashlimit/sash/core/internal/gate"
	"github.com/sashlimit/sash/core/internal/refusal"
	"github.com/sashlimit/sash/core/store"
)

// For adapters: Check decides about a request. Call it once for each request, and [Decision.Serve] if the request is
// allowed. A denial is a Decision. An error means that there is no decision; adapters answer it with [ProblemOf].
//
// A limiter that is mounted twice counts a request twice. But a request that holds a permit of [InFlight], whose
// context is that of [Decision.Context], takes no second one of the same limiter.
//
// If a callback panics, the error is an [adapter.PanicError]. Only [http.ErrAbortHandler] is passed on, if a net/http
// server is there to recover it.
func (l *Limiter) Check(r adapter.Request) (d Decision, err error) {
	err = l.check(r, &d)
	return d, err
}

// check is separate from Check for the same reason as askN is from AllowN.
func (l *Limiter) check(r adapter.Request, d *Decision) (err error) {
	asked := gate.Asked{Began: l.begin()}
	defer func() {
		p := recover()
		if p != nil {
			*d = Decision{}
			err = l.failed(r.Context(), &asked, d, adapter.NewPanicError(p))
		}
		aborts := p == http.ErrAbortHandler //nolint:errorlint // a panic's value is not a chain
		if aborts && r.Context().Value(http.ServerContextKey) != nil {
			panic(p) //nolint:forbidigo // the callback has asked net/http to abort
		}
		if err != nil {
			l.logRefused(r.Context(), err)
		}
	}()
	passed, err := l.gate.Check(r, &asked, &d.result)
	switch {
	case err != nil:
		return l.failed(r.Context(), &asked, d, err)
	case passed == event.Listed || passed == event.Skipped:
		d.limiter, d.Allowed = l, true
		l.pass(r.Context(), passed, &asked, d)
		return nil
	}
	l.decide(d)
	l.report(r.Context(), &asked, d)
	if !d.Allowed {
		return nil
	}
	if l.refunds != nil && d.result.Records() {
		d.served = new(served)
		d.served.response.Init(r)
	}
	if d.served != nil || l.inContext {
		d.result.Keep() // the handler may overwrite the memory that keys were read from
	}
	return nil
}

// logRefused logs why a request is refused, unless the last line about that is recent. A denial by a list is not
// logged, and the guard logs outages itself.
func (l *Limiter) logRefused(ctx context.Context, err error) {
	r := refusal.Refusal{Policy: l.policy(), Key: l.gate.Key.Name, Status: ProblemOf(err).Status, Err: err}
	switch {
	case r.Status == http.StatusForbidden, r.Status == http.StatusServiceUnavailable && store.IsOutage(err):
		return
	case r.Status == http.StatusServiceUnavailable:
		r.Reason = "the store cannot serve its key: see the store's documentation for the class"
	case errors.As(err, new(*adapter.PanicError)):
		r.Reason = "a callback has panicked"
	case errors.As(err, new(*adapter.ConstantError)): // not each ConfigError: one of ParseLimit contains its input
		r.Reason, r.Err = err.Error(), nil
	case errors.As(err, new(*gate.ListError)):
		r.Reason = "the key function of a list failed"
	case r.Status == http.StatusBadRequest:
		r.Reason = "it has no key"
	default:
		r.Reason = "its key function failed"
	}
	if failed := (*gate.KeyError)(nil); errors.As(err, &failed) {
		r.Policy, r.Key = failed.Policy, failed.Key
	}
	l.refusals.Refused(ctx, r)
}

var processStart = time.Now()

// begin returns the time for Event.Took, or 0 if there are no observers.
func (l *Limiter) begin() time.Duration {
	if l.observers == nil {
		return 0
	}
	return time.Since(processStart)
}
