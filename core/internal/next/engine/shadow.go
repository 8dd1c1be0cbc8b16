package engine

import (
	"context"
	"errors"

	"github.com/sashlimit/sash/core/event"
	"github.com/sashlimit/sash/core/internal/next/store"
)

// errNotTried is why a shadow is not asked in an outage.
var errNotTried = errors.New("sash: what is tried out is not asked while the store does not answer")

// askBoth asks the limits of a request, and those that are tried out, which have logs of their own and deny nobody. In
// a store outside the process both are asked at the same time, so they may be in one batch.
func (e *Engine) askBoth(ctx context.Context, a, shadow *Ask, r *Result) error {
	tried := *shadow
	tried.Mode, tried.NoPermits = a.Mode, a.NoPermits
	if !e.store.isFar {
		err := e.ask(ctx, a, r)
		r.Shadow, r.ShadowErr = e.try(ctx, &tried)
		return err
	}
	if !e.store.answers() {
		r.ShadowErr = errNotTried
		return e.ask(ctx, a, r)
	}
	type answer struct {
		result *Result
		err    error
	}
	answers := make(chan answer, 1)
	tried.Identities = append([]store.Identity(nil), shadow.Identities...)
	go func() {
		result, err := e.try(ctx, &tried)
		answers <- answer{result, err}
	}()
	err := e.ask(ctx, a, r)
	of := <-answers
	r.Shadow, r.ShadowErr = of.result, of.err
	return err
}

// try decides about limits that are tried out.
func (e *Engine) try(ctx context.Context, a *Ask) (*Result, error) {
	r := &Result{engine: e, Mode: a.Mode}
	r.makeTakes(a)
	if err := e.ask(ctx, a, r); err != nil {
		return nil, store.Error(err)
	}
	if r.Source == event.Local {
		return nil, errors.Join(errNotTried, r.Err)
	}
	return r, nil
}
