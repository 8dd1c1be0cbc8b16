package guard

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/sashlimit/sash/core/event"
	"github.com/sashlimit/sash/core/internal/deadline"
	"github.com/sashlimit/sash/core/store"
)

// call makes a call to the store about a key, within the time of a decision, if the breaker admits it.
func (g *Guard) call(ctx context.Context, key *store.Key, op event.Operation, f func(context.Context) error) error {
	p, ok := g.breaker.admit()
	if !ok {
		return g.lastError.Load()
	}
	g.Begin()
	defer g.End()
	ctx = g.inTime(ctx, time.Now())
	err := protect(func() error { return g.store.call(ctx, op, f) })
	g.report(p, err)
	return g.noteError(err, store.Take{Key: *key})
}

// inTime returns a context that ends with the time of a decision, which is ctx itself if the decision has begun before.
func (g *Guard) inTime(ctx context.Context, now time.Time) context.Context {
	if _, ok := ctx.(deadline.Context); ok {
		return ctx
	}
	return g.Within(ctx, now)
}

// callPatiently is call for as long as no request waits, in a turn of the breaker. During Close it does not ask that.
func (g *Guard) callPatiently(
	ctx context.Context, key *store.Key, turn int, op event.Operation, f func(context.Context) error,
) error {
	p, ok := g.breaker.admitIn(turn)
	if !ok && !g.finishing.Load() {
		return g.lastError.Load()
	}
	err := g.attempt(ctx, func(ctx context.Context) error { return g.store.call(ctx, op, f) })
	if g.report(p, err); ctx.Err() != nil { // the error says nothing about the store
		return err
	}
	return g.noteError(err, store.Take{Key: *key})
}

// report reports the outcome of a call to the breaker. An error that concerns one key shows that the store answers.
func (g *Guard) report(p pass, err error) {
	if store.IsOutage(err) {
		g.breaker.failure(p)
	} else if !p.bypassed {
		g.breaker.success(p)
	}
}

// noteError returns err as an error of package store. If the store has not answered, it keeps the error for calls that
// the breaker will not admit. The identities of the takes are not logged.
func (g *Guard) noteError(err error, takes ...store.Take) error {
	if err == nil || err == error(g.lastError.Load()) { //nolint:errorlint // it is returned as it is, and As is slow
		return err
	}
	if err = store.Error(err); store.IsOutage(err) {
		var failed *store.StoreError
		errors.As(err, &failed)
		last := *failed
		last.Err = fmt.Errorf("not asked, after an earlier error: %w", failed.Err)
		g.lastError.Store(&last)
		g.log.failed(failed.Class, g.breaker.isFailing, func() []slog.Attr { return logAttrs(failed, takes) })
	}
	return err
}

// attempt calls f, and calls it again while there is no answer, because the connection may be dead without an error.
// Hence f must be idempotent. Before attempt returns, it ends the calls that are still under way, so that none of them
// is executed after what the caller does next. It waits for that for a timeout at most.
func (g *Guard) attempt(parent context.Context, f func(context.Context) error) error {
	g.patient.Begin()
	defer g.patient.End()
	ctx, cancel := context.WithCancel(g.patient.Within(parent, time.Now()))
	defer context.AfterFunc(parent, cancel)()
	answers := make(chan error, backgroundTimeouts+1)
	pending := 0
	call := func() {
		pending++
		go func() { answers <- protect(func() error { return f(ctx) }) }()
	}
	defer func() {
		cancel()
		for timer := time.After(g.timeout); pending > 0; pending-- {
			select {
			case <-answers: //nolint:errcheck // another call has answered
			case <-timer:
				return
			}
		}
	}()
	again := time.NewTicker(max(g.timeout, retryStore))
	defer again.Stop()
	call()
	for {
		select {
		case err := <-answers:
			if pending--; pending == 0 || !store.IsOutage(err) {
				return err
			}
		case <-again.C:
			call()
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// protect turns a panic of the store into an error. In a goroutine nothing else recovers it.
func protect(f func() error) (err error) {
	defer func() {
		if recover() != nil {
			err = errPanicked
		}
	}()
	return f()
}
