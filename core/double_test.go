package core_test

import (
	"context"
	"time"

	"github.com/sashlimit/sash/core/store"
)

// double is a store outside the process whose calls a test sees. A function that is set decides what becomes of a call,
// which it may make by ask.
type double struct {
	store.Full

	take          func(takes []store.Take, ask func() error) error
	settle, reset func(ask func() error) error
	log           func(ask func() ([]store.Entry, error)) ([]store.Entry, error)
}

func (d *double) Take(ctx context.Context, takes []store.Take, answers []store.Answer) error {
	ask := func() error { return d.Full.Take(ctx, takes, answers) }
	if d.take == nil {
		return ask()
	}
	return d.take(takes, ask)
}

func (d *double) Settle(ctx context.Context, s store.Settlement) error {
	ask := func() error { return d.Full.Settle(ctx, s) }
	if d.settle == nil {
		return ask()
	}
	return d.settle(ask)
}

func (d *double) Reset(ctx context.Context, key store.Key, limits []*store.Limit, young time.Duration) error {
	ask := func() error { return d.Full.Reset(ctx, key, limits, young) }
	if d.reset == nil {
		return ask()
	}
	return d.reset(ask)
}

func (d *double) Log(ctx context.Context, key store.Key, limit *store.Limit) ([]store.Entry, error) {
	ask := func() ([]store.Entry, error) { return d.Full.Log(ctx, key, limit) }
	if d.log == nil {
		return ask()
	}
	return d.log(ask)
}

// Ping has the guard ask without a Take, which it does in the background.
func (d *double) Ping(context.Context) error { return nil }
