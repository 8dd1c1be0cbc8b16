package engine

import (
	"context"
	"time"

	"github.com/sashlimit/sash/core/internal/limittext"
	"github.com/sashlimit/sash/core/store"
)

// IsOwn reports whether all limits have the own key.
func (s *Set) IsOwn() bool { return len(s.Keys) == 1 && s.Keys[0].Own }

// Set returns the limits of a rule that was prepared.
func (r *Rule) Set() *Set { return r.alone }

// MayHold reports whether limits of requests in flight were asked.
func (e *Engine) MayHold() bool { return e.holds.Load() }

// HasOverrides reports whether the engine looks for overrides.
func (e *Engine) HasOverrides() bool { return e.overrides != nil }

// Records reports whether units were recorded, or would be if the request cost any.
func (r *Result) Records() bool {
	return r.Set != nil && r.Allowed && r.Mode != store.ModePeek && (r.Cause == ByLimits || r.Cause == ByNothing)
}

// ReleaseServed is Release for a request that has been served. The client may have left, so the request's context does
// not end it. The guard logs failures of the store, and the lease ends the permit.
func (r *Result) ReleaseServed() {
	r.Release(context.WithoutCancel(r.list.held.Context)) //nolint:errcheck // as above
}

// Each returns the limits of the request as they stand now, each asked by itself for what the request costs, or for one
// unit if it costs nothing: for people, who want to know about all of them. It looks at no ban, and fails if the store
// does not answer. Wait returns how long a limit would have the request wait.
func (r *Result) Each(ctx context.Context) (*Result, error) {
	return r.now(ctx, func(cost int) int { return max(cost, 1) })
}

// Wait returns how long it takes until a limit has room for the request, 0 if it has or never will.
func (r *Result) Wait(limit int) time.Duration {
	if !r.Asks(limit) {
		return 0
	}
	_, a := r.of(limit)
	return a.Retry
}

// OverrideOf returns the override that is in force for the request's identity of a limit's key, or nil.
func (r *Result) OverrideOf(l *Limit) *Override {
	if r.engine.overrides == nil {
		return nil
	}
	for i, all := 0, r.all(); i < len(all); i++ {
		if r.limitOf(i).SameKey(l) {
			return r.engine.overrides.find(l.key, &all[i].Key.Identity, true)
		}
	}
	return nil
}

// SameKey reports whether two limits have one key.
func (l *Limit) SameKey(other *Limit) bool { return l.key.is(other.key) }

// SameLog reports whether two limits are quotas on one log of each identity.
func (l *Limit) SameLog(other *Limit) bool { return l.SameKey(other) && l.Log() == other.Log() }

// Window is a limit as it stands now, for a page.
type Window struct {
	Name       string // as in the header fields
	Unit       string // what it counts, such as "requests"
	Quota      int
	Used       int
	Remaining  int
	ResetAfter time.Duration

	Window    time.Duration // of the limit, or the lease of requests in flight
	Algorithm string        // such as "sliding log", or "in flight"
	Key       string        // whose quota it is. It may be personal data

	// Entries of the sliding log in the window, oldest first. They are nil for other limits, which keep none; if more
	// than 10,000 units are used, since listing them would take long; and if the store cannot list a log.
	Entries []store.Entry

	// Now is when Entries were listed, on their clock, which is that of the store. It is the time of this process if
	// there are no entries, or if some have come or left meanwhile.
	Now time.Time

	// Reset deletes what the log of the limit holds for this key, and with it what other limits of the same key have
	// counted. For the limiter's own key it lifts bans as well.
	Reset func(context.Context) error
}

const maxListed = 10_000 // units of a log whose entries are listed

// Windows returns the limits that a request was asked about, as they stand now for the same keys, and the entries of
// their logs. Nothing is counted. It asks the store twice about each log, so it is for pages that people look at. It
// fails if the store does not answer.
func (r *Result) Windows(ctx context.Context) ([]Window, error) {
	if r.Set == nil {
		return nil, nil
	}
	now, err := r.Now(ctx)
	if err != nil {
		return nil, err
	}
	windows := make([]Window, 0, len(r.Set.Limits))
	for i := range r.Set.Limits {
		l := &r.Set.Limits[i]
		w := Window{
			Name: l.Name, Unit: limittext.UnitName(l.Unit), Quota: l.Quota, Used: now.Used(i), Remaining: now.Left(i),
			ResetAfter: now.Reset(i), Window: l.Window, Algorithm: l.Algorithm(), Now: time.Now(),
			Key:   now.all()[now.place(i)].Key.Label(),
			Reset: func(ctx context.Context) error { return now.ResetLimit(ctx, i) },
		}
		if l.KeepsEntries() && !l.InFlight && w.Used <= maxListed && r.engine.store.lists {
			if w.Entries, err = now.Entries(ctx, i); err != nil {
				return nil, err
			}
			units := 0
			for _, e := range w.Entries {
				units += e.Cost
			}
			if units == w.Used && units > 0 { // then the store's time follows from the oldest and when it leaves
				w.Now = w.Entries[0].At.Add(l.Store().Window - w.ResetAfter)
			}
		}
		windows = append(windows, w)
	}
	return windows, nil
}

// Joins returns nil if the store can decide about several logs together, and otherwise why not.
func (e *Engine) Joins() error {
	one := store.Limit{Log: "a", Quota: 1, Window: time.Second}
	other := one
	other.Log = "b"
	return e.store.validate(&one, &other)
}
