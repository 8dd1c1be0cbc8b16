package guard

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sashlimit/sash/core/event"
	"github.com/sashlimit/sash/core/internal/permits"
	"github.com/sashlimit/sash/core/store"
)

// call makes a call to the store about a log, within the time of a decision.
func (g *Guard) call(
	ctx context.Context, k *store.Key, l *store.Limit, op event.Operation, f func(context.Context) error,
) error {
	if g.isOpen() {
		return g.lastError.Load()
	}
	ctx, cancel := g.Within(ctx)
	defer cancel()
	before := g.breaker.counted.Load()
	err := g.store.call(ctx, op, f)
	g.report(before, err)
	return g.noteError(err, k, l)
}

// noteError returns err as an error of package store. If the store has not answered, it keeps the error for calls that
// will not be made.
func (g *Guard) noteError(err error, k *store.Key, l *store.Limit) error {
	if err == nil || err == error(g.lastError.Load()) { //nolint:errorlint // it is returned as it is
		return err
	}
	err = store.Error(err)
	var failed *store.StoreError
	if !store.IsOutage(err) || !errors.As(err, &failed) {
		return err
	}
	last := *failed
	last.Err = fmt.Errorf("not asked, after an earlier error: %w", failed.Err)
	g.lastError.Store(&last)
	g.lastFailed.Store(&store.Take{Key: k.Clone(), Limit: l, Cost: 1, ID: newID(), Mode: store.ModePeek})
	g.log.failed(failed, k, g.breaker.isFailing)
	return err
}

// Settle changes the cost of a take. Degraded reports whether [Guard.Take] has returned event.Local for it. What a call
// that is under way, or a replay, would undo is done afterwards, and in a log of entries what has failed.
func (g *Guard) Settle(ctx context.Context, s store.Settlement, degraded bool) error {
	defer g.denials.Forget(&s.Key, s.Limit)
	switch {
	case degraded && g.config.Failure != Local:
		return nil
	case degraded && s.Limit.Algorithm != store.SlidingLog:
		g.record.Settle(&s)
		return nil
	}
	_, err := g.settle(ctx, &s, degraded)
	return err
}

// settle settles a take in the log of this process, which may have it whoever has decided it, since Add records there,
// and in the store, one settlement of it at a time. It reports whether the store is told later. If it returns an error
// about a log of entries, the store is told later too.
func (g *Guard) settle(ctx context.Context, s *store.Settlement, degraded bool) (later bool, err error) {
	if g.store.settler == nil {
		return false, g.store.lacks("Settle", "change what was recorded", "store.Settler")
	}
	b, changes := g.begin(s, degraded)
	if b == nil {
		return true, nil
	}
	err = g.call(ctx, &s.Key, s.Limit, event.Settle, func(ctx context.Context) error {
		return g.store.settler.Settle(ctx, *s)
	})
	id, done := s.ID, err == nil || s.Limit.Algorithm != store.SlidingLog || errors.As(err, new(*store.ConfigError))
	whenEnded(err, func() { g.ended(b, id, changes, done) })
	return false, err
}

// Add records a take in a log that its request has not asked, as if that had been done age ago, or changes its cost.
// During an outage it is recorded here.
func (g *Guard) Add(ctx context.Context, t *store.Take, age time.Duration) error {
	defer g.denials.Forget(&t.Key, t.Limit)
	if g.store.merger == nil {
		return g.store.lacks("Merge", "add units later", "store.Merger")
	}
	s := store.Settlement{Key: t.Key, Limit: t.Limit, ID: t.ID, Was: t.Cost, Cost: t.Cost, Age: age}
	m := store.MergeRequest{Key: t.Key, Limit: t.Limit, Entries: []store.Entry{{ID: t.ID, Cost: t.Cost, Age: age}}}
	later, err := g.settle(ctx, &s, g.config.Failure == Local)
	if err == nil && !later {
		err = g.call(ctx, &t.Key, t.Limit, event.Merge, func(ctx context.Context) error {
			return g.store.merger.Merge(ctx, m)
		})
		if !store.IsOutage(err) {
			return err
		}
		g.fly(err, []store.Take{*t})
	}
	if g.config.Failure != Local {
		return cmp.Or(err, error(errReplaying))
	}
	at := g.record.now() - age // before the log reads its clock
	g.record.Merge(&m)
	g.owe(&s)
	g.record.decided(&t.Key, t.Limit, t.Cost, at)
	return nil
}

// Reset forgets the logs that limits have of a key. With leases it leaves what may be in the hands of other processes.
func (g *Guard) Reset(ctx context.Context, key store.Key, limits []*store.Limit) error {
	if len(limits) == 0 {
		return nil
	}
	ctx, cancel := g.Within(ctx)
	defer cancel()
	if h := g.leases.find(&key); h != nil {
		g.endLeases(ctx, h)
	}
	defer func() {
		for _, l := range limits {
			g.denials.Forget(&key, l)
		}
	}()
	for _, r := range g.record.reset(&key, limits, g.leases != nil) {
		await(ctx, r.done) // otherwise the replay could add entries after the log was reset
	}
	return g.call(ctx, &key, limits[0], event.Reset, func(ctx context.Context) error {
		return g.store.Reset(ctx, key, limits, g.config.Lease)
	})
}

// Log returns the entries of a log, as [store.Lister] does. The store must be one.
func (g *Guard) Log(ctx context.Context, key store.Key, l *store.Limit) (entries []store.Entry, err error) {
	err = g.call(ctx, &key, l, event.Log, func(ctx context.Context) (err error) {
		entries, err = g.store.lister.Log(ctx, key, l)
		return err
	})
	return entries, err
}

// askOverrider calls the store about overrides. Its errors are no failures of the store: it may answer takes and not be
// permitted to keep overrides.
func (g *Guard) askOverrider(ctx context.Context, op event.Operation, f func(context.Context) error) error {
	if g.isOpen() {
		return g.lastError.Load()
	}
	ctx, cancel := g.Within(ctx)
	defer cancel()
	return store.Error(g.store.call(ctx, op, f))
}

// Overrides returns the overrides of a policy, as [store.Overrider] does.
func (g *Guard) Overrides(
	ctx context.Context, policy, known string,
) (version string, all []store.Override, err error) {
	err = g.askOverrider(ctx, event.Overrides, func(ctx context.Context) (err error) {
		version, all, err = g.store.overrider.Overrides(ctx, policy, known)
		return err
	})
	return version, all, err
}

// SetOverride keeps an override of a policy, as [store.Overrider] does.
func (g *Guard) SetOverride(ctx context.Context, policy string, o store.Override) error {
	return g.askOverrider(ctx, event.SetOverride, func(ctx context.Context) error {
		return g.store.overrider.SetOverride(ctx, policy, o)
	})
}

// permitLogs are the logs of a guard's permits: those of the store, and with Local those of this process, which count
// what it holds in case of an outage.
type permitLogs struct{ *Guard }

func (g permitLogs) Renew(ctx context.Context, r *store.Renewal) error {
	err := g.call(ctx, &r.Key, r.Limit, event.Renew, func(ctx context.Context) error {
		return g.store.renewer.Renew(ctx, *r)
	})
	if err != nil { // a call that is under way still may add what is released before it ends
		takes := make([]store.Take, len(r.IDs))
		for i, id := range r.IDs {
			takes[i] = store.Take{Key: r.Key, Limit: r.Limit, ID: id}
		}
		g.fly(err, takes)
	}
	return err
}

// Release gives a permit back.
func (g permitLogs) Release(ctx context.Context, p *permits.Permit) error {
	s := store.Settlement{Key: p.Key, Limit: p.Limit, ID: p.ID, Was: 1, Age: p.Age()}
	if p.Degraded && !p.Renewed && !g.record.mayHave(s.Age) {
		if g.config.Failure == Local {
			g.record.Settle(&s)
		}
		return nil
	}
	_, err := g.settle(ctx, &s, false)
	if p.Degraded {
		return nil
	}
	return err
}
