package engine

import (
	"context"
	"errors"
	"slices"

	"github.com/sashlimit/sash/core/event"
	"github.com/sashlimit/sash/core/store"
)

// errNotTried is why a shadow is not asked in an outage.
var errNotTried = errors.New("sash: what is tried out is not asked while the store does not answer")

// askBoth asks the limits of a request, and those that are tried out, which have logs of their own and deny nobody. In
// a store outside the process both are asked at the same time, so they may be in one batch.
func (e *Engine) askBoth(ctx context.Context, a *Ask, shadow *Trial, r *Result) error {
	own := *shadow
	own.Ask.Mode, own.Ask.Identities = a.Mode, slices.Clone(shadow.Ask.Identities)
	if !e.store.isFar {
		err := e.ask(ctx, a, r)
		r.Shadow, r.ShadowErr = e.try(ctx, &own)
		return err
	}
	if !e.store.answers() {
		r.ShadowErr = errNotTried
		return e.ask(ctx, a, r)
	}
	var result *Result
	var failed error
	done := make(chan struct{})
	go func() {
		defer close(done)
		result, failed = e.try(ctx, &own)
	}()
	err := e.ask(ctx, a, r)
	<-done
	r.Shadow, r.ShadowErr = result, failed
	return err
}

// shadowFailed reports an error of what is tried out, unless it is nil.
func (e *Engine) shadowFailed(ctx context.Context, err error) {
	if err != nil && e.config.ShadowFailed != nil {
		e.config.ShadowFailed(ctx, err)
	}
}

// TryOut decides about limits that are tried out, for a request that was decided without them.
func (r *Result) TryOut(ctx context.Context, shadow *Trial) {
	r.Shadow, r.ShadowErr = r.engine.try(ctx, shadow)
}

// try decides about limits that are tried out.
func (e *Engine) try(ctx context.Context, t *Trial) (*Result, error) {
	r := &Result{engine: e, Mode: t.Ask.Mode}
	r.makeTakes(t.Set, &t.Ask)
	if err := e.ask(ctx, &t.Ask, r); err != nil {
		return nil, store.Error(err)
	}
	if r.Source == event.Local {
		return nil, errors.Join(errNotTried, r.Err)
	}
	return r, nil
}
