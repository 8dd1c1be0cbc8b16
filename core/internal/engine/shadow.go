package engine

import (
	"context"
	"errors"

	"github.com/sashlimit/sash/core/event"
	"github.com/sashlimit/sash/core/store"
)

// errNotTried is why a shadow is not asked in an outage.
var errNotTried = errors.New("sash: what is tried out is not asked while the store does not answer")

// askBoth asks the limits of a request, and those that are tried out, which have logs of their own and deny nobody. In
// a store outside the process both are asked at the same time, so they may be in one batch.
func (e *Engine) askBoth(ctx context.Context, a *Ask, r *Result) error {
	alone := *a
	alone.Shadow = nil
	switch {
	case !e.store.isFar:
		err := e.ask(ctx, &alone, r)
		e.tryOut(ctx, a, r)
		return err
	case !e.store.Answers():
		r.ShadowErr = errNotTried
		return e.ask(ctx, &alone, r)
	}
	shadow, mode, tried := *a.Shadow, a.Mode, new(Result)
	done := make(chan error, 1)
	go func() { done <- e.try(ctx, &shadow, mode, tried) }()
	err := e.ask(ctx, &alone, r)
	if r.ShadowErr = <-done; r.ShadowErr == nil {
		r.Shadow = tried
	}
	return err
}

// ShadowFailed reports an error of what is tried out for a policy or a rule, unless it is nil.
func (e *Engine) ShadowFailed(ctx context.Context, policy string, err error) {
	if err != nil && e.config.ShadowFailed != nil {
		e.config.ShadowFailed(ctx, policy, err)
	}
}

// tryOut decides about what is tried out, for a request that was decided without that.
func (e *Engine) tryOut(ctx context.Context, a *Ask, r *Result) {
	tried := new(Result)
	if r.ShadowErr = e.try(ctx, a.Shadow, a.Mode, tried); r.ShadowErr == nil {
		r.Shadow = tried
	}
}

// try decides about limits that are tried out.
func (e *Engine) try(ctx context.Context, t *Trial, mode store.Mode, r *Result) error {
	a := t.Ask
	a.Mode, r.engine, r.Mode = mode, e, mode
	r.makeTakes(t.Set, &a)
	if err := e.ask(ctx, &a, r); err != nil {
		return store.Error(err)
	}
	if r.Source == event.Local {
		return errors.Join(errNotTried, r.Err)
	}
	return nil
}
