package engine

import (
	"context"
	"time"

	"github.com/sashlimit/sash/core/store"
)

// Window is a limit as it stands now, for a page.
type Window struct {
	*Limit
	State

	Of string // whose quota it is. It may be personal data

	// Entries of the sliding log in the window, oldest first. They are nil for other limits, which keep none; if more
	// than 10,000 units are used, since listing them would take long; and if the store cannot list a log.
	Entries []store.Entry

	// Now is when Entries were listed, on their clock, which is that of the store. It is the time of this process if
	// there are no entries, or if some have come or left meanwhile.
	Now time.Time

	// Clear deletes what the log of the limit holds for this key, and with it what other limits of the same key have
	// counted. For the limiter's own key it lifts bans as well.
	Clear func(context.Context) error
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
	all, _ := now.all()
	for i := range r.Set.Limits {
		w := Window{Limit: &r.Set.Limits[i], State: now.State(i), Of: all[i].Label(), Now: time.Now()}
		w.Clear = func(ctx context.Context) error { return r.engine.reset(ctx, &all[i].Key) }
		if w.KeepsEntries() && !w.InFlight && w.Used <= maxListed && r.engine.store.lists {
			if w.Entries, err = now.Entries(ctx, i); err != nil {
				return nil, err
			}
			units := 0
			for _, e := range w.Entries {
				units += e.Cost
			}
			if units == w.Used && units > 0 { // then the store's time follows from the oldest and when it leaves
				w.Now = w.Entries[0].At.Add(w.Store().Window - w.State.Reset)
			}
		}
		windows = append(windows, w)
	}
	return windows, nil
}

// Log lists the entries of a limit's log, oldest first. The error is a [store.ConfigError] if it keeps none, or if the
// store cannot list it.
func (e *Engine) Log(ctx context.Context, l *Limit, id store.Identity) ([]store.Entry, error) {
	if !l.KeepsEntries() {
		return nil, configError("Log", l.Text, "this limit keeps counters, not requests",
			"list limits with sliding logs")
	}
	if !e.store.lists {
		return nil, configError("Log", e.store.name(),
			"this store cannot list a log: it has no method Log (store.Lister)", otherStore)
	}
	entries, err := e.store.Log(ctx, store.Key{Namespace: l.key.Namespace, Identity: id}, l.Store())
	return entries, store.Error(err)
}

// Entries lists the entries of a limit's log, as [Engine.Log] does, for the identity of the request.
func (r *Result) Entries(ctx context.Context, limit int) ([]store.Entry, error) {
	all, _ := r.all()
	return r.engine.Log(ctx, &r.Set.Limits[limit], all[limit].Identity)
}

// Now returns the limits of the request as they stand now, for people: each is asked by itself, since a denial that is
// remembered tells one limit only, for what the request costs, or for one unit if it costs nothing. Neither bans nor
// overrides are looked at. It fails if the store does not answer.
func (r *Result) Now(ctx context.Context) (*Result, error) {
	ctx, cancel := r.engine.store.Within(ctx)
	defer cancel()
	now := *r
	now.Keep() // others may use the takes
	now.Shadow, now.Allowed, now.Cause, now.Mode = nil, true, ByLimits, store.ModePeek
	takes, answers := now.all()
	now.asks, now.held = len(takes), nil
	for i := range takes {
		t := &takes[i]
		t.Limit, t.Cost, t.Mode, t.ID = now.Set.Limits[i].Store(), max(t.Cost, 1), store.ModePeek, 0
		answers[i] = store.Answer{}
		source, err := r.engine.store.take(ctx, takes[i:i+1], answers[i:i+1])
		if now.Source = source; err != nil {
			return nil, store.Error(err)
		}
		now.Allowed = now.Allowed && answers[i].Allowed
	}
	return &now, nil
}
