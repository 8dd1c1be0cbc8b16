package core

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/sashlimit/sash/core/adapter"
	"github.com/sashlimit/sash/core/store"
)

// Allow takes one unit of key's quota if it has one left. A denial is not an
// error: look at Allowed, or at [Decision.Err]. An error says that the store could
// not answer, or that the key is empty ([ErrNoKey]).
//
// The key is text: what the limiter's key would make of a request, so that it names the
// same log. For [ByIP] that is an address, for [ByHeader] and [By] the identity, and
// for [First] whichever of them fits. Under [Global] and [Join] it is a name of its own.
func (l *Limiter) Allow(ctx context.Context, key string) (d Decision, err error) {
	err = l.ask(ctx, key, 1, l.mode, &d)
	return d, err
}

// AllowN takes cost units, all or none. A cost above a quota can never pass:
// the decision is a denial, and there is an error that is [ErrCostExceedsQuota], so that
// nobody waits for it.
func (l *Limiter) AllowN(ctx context.Context, key string, cost int) (d Decision, err error) {
	err = l.askN(ctx, key, cost, &d)
	return d, err
}

// askN is apart so that AllowN is short enough to be inlined. If not, it copies its Decision twice, which is a tenth of its time.
func (l *Limiter) askN(ctx context.Context, key string, cost int, d *Decision) error {
	err := l.ask(ctx, key, cost, l.mode, d)
	if err == nil && d.never() {
		err = d.Err()
	}
	return err
}

// Peek tells what [Limiter.Allow] would say, and takes nothing: Remaining is
// what is left now.
func (l *Limiter) Peek(ctx context.Context, key string) (d Decision, err error) {
	err = l.ask(ctx, key, 1, store.ModePeek, &d)
	return d, err
}

// Record counts cost units and never denies. Used is how many units the window of the longest limit
// held before: by that, work can be ordered so that who has had little comes first.
//
// Of a key it keeps as many units as the largest quota, at least [store.MaxRecorded], and beyond
// that Used stays there.
func (l *Limiter) Record(ctx context.Context, key string, cost int) (d Decision, err error) {
	err = l.ask(ctx, key, cost, store.ModeRecord, &d)
	return d, err
}

// Log lists what fills the window of the longest limit: instants and costs, oldest first. Who made the
// requests is not in there.
func (l *Limiter) Log(ctx context.Context, key string) ([]Entry, error) {
	var who identity
	if err := l.named(key, &who); err != nil {
		return nil, err
	}
	window := cmp.Or(time.Duration(l.policy.keep.Load()), MaxWindow)
	if l.policy.fixed != nil {
		window = l.policy.fixed.limits[l.policy.fixed.longest].Window
	}
	if l.lister == nil {
		return nil, &ConfigError{Option: "Log", Value: fmt.Sprintf("%T", l.store), Reason: "this store cannot list a log: it has no method Log (store.Lister)"}
	}
	entries, err := l.lister.Log(ctx, store.Key{Namespace: l.space, Identity: who}, window)
	if err != nil {
		return nil, store.Error(err)
	}
	return entries, nil
}

// Reset forgets what key has used, and its bans. A key that is not known is no error.
func (l *Limiter) Reset(ctx context.Context, key string) error {
	var who identity
	if err := l.named(key, &who); err != nil {
		return err
	}
	err := l.reset(ctx, store.Key{Namespace: l.space, Identity: who})
	if err == nil && l.ban != nil {
		err = l.ban.lift(ctx, l, who)
	}
	return err
}

// ask fills in d, which is zero.
func (l *Limiter) ask(ctx context.Context, key string, cost int, mode store.Mode, d *Decision) (err error) {
	d.began, d.mode, d.cost = l.begin(), mode, cost
	if err = l.named(key, &d.key.Identity); err != nil {
		return l.failed(ctx, d, err)
	}
	plan, err := l.planFor(ctx)
	if err != nil {
		return l.failed(ctx, d, err)
	}
	return l.decide(ctx, plan, cost, mode, mode != store.ModePeek, d)
}

// planFor is the plan where there is no request.
func (l *Limiter) planFor(ctx context.Context) (*plan, error) {
	if !l.policy.varies() {
		return l.policy.fixed, nil
	}
	if !l.policy.context {
		return nil, fmt.Errorf("sash: LimitBy chooses by %v, and there is no request: give LimitBy a func(context.Context) core.Limits", l.policy.wants[0].typ)
	}
	return l.plan(noRequest{ctx})
}

// named finds the identity that a caller without a request means.
func (l *Limiter) named(key string, who *identity) error {
	if l.key.named != nil {
		if named, ok := l.key.named(key, &l.prefixes); ok {
			*who = named
			return nil
		}
	}
	if key == "" {
		return ErrNoKey
	}
	who.Kind, who.Text = kindBy, key
	return nil
}

// noRequest is all that callbacks get where there is only a context.
type noRequest struct{ ctx context.Context }

func (r noRequest) Context() context.Context { return r.ctx }
func (noRequest) Peer() adapter.Peer         { return adapter.Peer{} }
func (noRequest) Header(string) []string     { return nil }
func (r noRequest) Value(key any) any        { return r.ctx.Value(key) }
func (noRequest) Native() any                { return nil }
