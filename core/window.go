package core

import (
	"context"
	"time"

	"github.com/sashlimit/sash/core/store"
)

// LimitWindow is a limit of a decision as it stands later, for pages that show it to people; see [Decision.Windows].
type LimitWindow struct {
	LimitState

	Window    time.Duration // of the limit, or the lease of InFlight
	Algorithm string        // such as "sliding log", or "in flight"
	Key       string        // whose quota it is. It may be personal data
	Now       time.Time     // on the clock of the store, as Entries are

	// Entries of the sliding log in the window, oldest first. They are nil for other limits, which keep none, and if
	// the store cannot list a log.
	Entries []Entry

	decision *Decision
	key      store.Key
}

// Windows returns the limits that the request was asked about, as they stand now: what the same keys would be answered
// to a request of one unit, and the entries of their logs. It counts nothing, and observers are not told. It asks the
// store once for the answer and once for each log, so it is for pages that people look at and not for each request.
// Without limits, as for a skipped request, it returns none.
func (d Decision) Windows(ctx context.Context) ([]LimitWindow, error) {
	if d.plan == nil {
		return nil, nil
	}
	l := d.limiter
	logs := d.plan.logs
	if len(logs) == 0 {
		logs = []*planLog{{counts: d.plan.only != nil, at: indexes(len(d.plan.limits)), key: l.key.keySpec}}
	}
	now := Decision{limiter: l, plan: d.plan, key: d.key, joint: d.joint, cost: 1, mode: store.ModePeek}
	now.cloneKeys() // others may use the takes of d
	windows := make([]LimitWindow, len(d.plan.limits))
	for i, log := range logs {
		key := now.key
		if d.joint != nil {
			key = now.joint.takes[i].Key
		}
		for _, at := range log.at {
			if at >= len(windows) {
				continue // of a shadow
			}
			limit := &d.plan.limits[at]
			w := &windows[at]
			w.Window, w.Algorithm, w.Key = limit.Window, limit.algorithm.String(), key.Label()
			w.decision, w.key = &now, key
			switch {
			case log.slots:
				w.Algorithm = "in flight"
			case !log.counts && l.lister != nil:
				var err error
				if w.Entries, err = l.lister.Log(ctx, key, limit.Window); err != nil {
					return nil, store.Error(err)
				}
			}
		}
	}
	if err := l.charge(ctx, &now, now.mode); err != nil { // not evaluate, since bans leave the log as it is
		return nil, store.Error(err)
	}
	for i, state := range now.Limits() {
		windows[i].LimitState = state
		windows[i].Now = windows[i].storeTime()
	}
	return windows, nil
}

func indexes(n int) []int {
	at := make([]int, n)
	for i := range at {
		at[i] = i
	}
	return at
}

// storeTime returns the time of the store, which follows from the oldest entry and when it leaves. If entries have come
// or left since they were listed, it is unknown, and the time of this process is as good as any.
func (w *LimitWindow) storeTime() time.Time {
	units := 0
	for _, e := range w.Entries {
		units += e.Cost
	}
	if units == 0 || units != w.Used {
		return time.Now()
	}
	return w.Entries[0].At.Add(w.Window - w.ResetAfter)
}

// Reset deletes what the log of the limit holds for this key, and with it what other limits of the same key have
// counted. For the limiter's own key it lifts bans as well.
func (w *LimitWindow) Reset(ctx context.Context) error {
	l := w.decision.limiter
	err := l.reset(ctx, w.key)
	if err == nil && l.ban != nil && w.key.Identity == w.decision.key.Identity {
		err = l.ban.lift(ctx, l, w.key.Identity)
	}
	return err
}
