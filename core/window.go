package core

import (
	"cmp"
	"context"
	"time"

	"github.com/sashlimit/sash/core/internal/plan"
	"github.com/sashlimit/sash/core/store"
)

const maxListed = 10_000 // units of a log whose entries are listed

// LimitWindow is a limit of a decision as it stands later, for pages that show it to people; see [Decision.Windows].
type LimitWindow struct {
	LimitState

	Window    time.Duration // of the limit, or the lease of InFlight
	Algorithm string        // such as "sliding log", or "in flight"
	Key       string        // whose quota it is. It may be personal data

	// Entries of the sliding log in the window, oldest first. They are nil for other limits, which keep none; if more
	// than 10,000 units are used, since listing them would take long; and if the store cannot list a log.
	Entries []Entry

	// Now is when Entries were listed, on their clock, which is that of the store. It is the time of this process if
	// there are no entries, if some have come or left meanwhile, or if [WithShadow] looks further back.
	Now time.Time

	decision *Decision
	key      store.Key
}

// Windows returns the limits that the request was asked about, as they stand now for the same keys, and the entries of
// their logs. It looks at limits alone: neither at bans nor at lists. Nothing is counted, and observers are not told.
//
// It asks the store twice about each log, so it is for pages that people look at and not for each request. If the store
// does not answer it fails, whatever [WithFailure] says. Without limits, as for a skipped request, it returns none.
func (d Decision) Windows(ctx context.Context) ([]LimitWindow, error) {
	if d.plan == nil {
		return nil, nil
	}
	l := d.limiter
	if l.guard != nil {
		ctx = l.guard.Within(ctx, time.Now())
	}
	now := &Decision{limiter: l, plan: d.plan, take: d.take, more: d.more}
	now.take.Cost, now.take.Mode = 1, store.ModePeek
	now.cloneKeys() // others may use the takes of d
	if err := now.peek(ctx); err != nil {
		return nil, store.Error(err)
	}
	windows := make([]LimitWindow, len(d.plan.Limits))
	for i, state := range now.Limits() {
		windows[i].LimitState = state
	}
	for i, log := range d.plan.Logs {
		t, _ := now.at(i)
		if err := now.list(ctx, log, t.Key, windows); err != nil {
			return nil, store.Error(err)
		}
	}
	return windows, nil
}

// peek asks about each log by itself, because the deny cache answers for all of them when one denies. It does not look
// at bans.
func (d *Decision) peek(ctx context.Context) error {
	for i, log := range d.plan.Logs {
		t, a := d.at(i)
		peek := store.Take{Key: t.Key, Plan: log.StorePlan(), Cost: d.take.Cost, Mode: d.take.Mode}
		var err error
		if *a, err = d.limiter.takeOne(ctx, peek, d); err != nil || d.storeErr != nil {
			return cmp.Or(err, d.storeErr)
		}
	}
	if d.more != nil {
		d.answer = d.plan.Merge(d.more.answers, d.fitting(), d.take.Mode)
	}
	d.fill()
	return nil
}

// list fills in the rest of the windows of a log's limits.
func (d *Decision) list(ctx context.Context, log *plan.Log, key store.Key, windows []LimitWindow) (err error) {
	most := 0
	for _, at := range log.At {
		if at < len(windows) { // and not of a shadow
			most = max(most, windows[at].Used)
		}
	}
	var entries []Entry
	units := 0
	listed := !log.InFlight() && log.KeepsEntries() && d.limiter.lister != nil && most <= maxListed
	if listed {
		if entries, err = d.limiter.lister.Log(ctx, key, log.Keep); err != nil {
			return err
		}
		for _, e := range entries {
			units += e.Cost
		}
	}
	for _, at := range log.At {
		if at >= len(windows) {
			continue
		}
		limit, w := &d.plan.Limits[at], &windows[at]
		w.Window, w.Algorithm, w.Key = limit.Window, limit.Algorithm.String(), key.Label()
		w.decision, w.key = d, key
		if log.InFlight() {
			w.Algorithm = "in flight"
		}
		if w.Now = time.Now(); listed {
			w.setEntries(entries, units == most)
		}
	}
	return nil
}

// setEntries sets the entries that are in the window: the latest ones, which have its units. If they are those that the
// limit was asked about, the time of the store follows from the oldest of them and when it leaves.
func (w *LimitWindow) setEntries(all []Entry, same bool) {
	units, first := 0, len(all)
	for first > 0 && units < w.Used {
		first--
		units += all[first].Cost
	}
	w.Entries = append([]Entry{}, all[first:]...)
	if same && units == w.Used && units > 0 {
		w.Now = w.Entries[0].At.Add(w.Window - w.ResetAfter)
	}
}

// Reset deletes what the log of the limit holds for this key, and with it what other limits of the same key have
// counted. For the limiter's own key it lifts bans as well.
func (w *LimitWindow) Reset(ctx context.Context) error {
	l := w.decision.limiter
	err := l.reset(ctx, w.key)
	if err == nil && l.ban != nil && w.key.Identity == w.decision.take.Key.Identity {
		err = l.ban.lift(ctx, l, w.key.Identity)
	}
	return err
}
