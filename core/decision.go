package core

import (
	"context"
	"strconv"
	"time"

	"github.com/sashlimit/sash/core/event"
	"github.com/sashlimit/sash/core/internal/inflight"
	"github.com/sashlimit/sash/core/store"
)

// Decision is the answer to one request. Its slices are shared: do not write
// to them. Printed or logged it does not tell whose request it was.
type Decision struct {
	Allowed    bool
	Remaining  int           // units left after this request, of the limit with the least left
	RetryAfter time.Duration // until this request would be allowed, if nobody else comes; zero when it is, or never will be
	ResetAfter time.Duration // until the oldest unit leaves that limit's window
	Used       int           // units in the window before this request, of the longest limit
	Policy     string        // its name
	Violated   []string      // names of the limits that denied
	Banned     bool          // denied by [WithBan], whatever the limits say
	Degraded   bool          // decided without the store

	why     error // of Degraded
	limiter *Limiter
	plan    *plan // nil when nothing was decided, as for a skipped request
	answer  store.Answer
	cost    int           // units asked for
	began   time.Duration // since the process did, or 0 if there are no observers
	mode    store.Mode
	source  event.Source
	taken   int // units of cost that were recorded: all or none
	key     store.Key
	id      uint64
	served  *served        // what WithRefund will be asked about, or nil
	token   inflight.Token // is released when Serve ends
}

// sum fills in what everybody may read from what the store has answered.
func (d *Decision) sum(mode store.Mode) {
	d.Allowed, d.RetryAfter, d.Policy = d.answer.Allowed, d.answer.Retry, d.limiter.space.Policy()
	if d.why != nil && d.limiter.guard.Open() {
		d.plan = nil // nothing was counted, so there is nothing to tell
		return
	}
	switch {
	case !d.Allowed:
		d.Violated = d.violated()
		if mode == store.ModeChargeDenied && !d.never() {
			d.taken = d.cost
		}
	case mode != store.ModePeek:
		d.taken = d.cost
	}
	least := d.tightest()
	d.Remaining, d.ResetAfter = d.left(least), d.answer.State[least].Reset
	d.Used = d.answer.State[d.plan.longest].Used
}

// shadow is what the shadow policy would have said.
func (d *Decision) shadow() *Decision {
	s := &Decision{limiter: d.limiter, plan: d.plan.shadow, cost: d.cost}
	s.answer = store.Answer{Retry: d.answer.Shadow}
	copy(s.answer.State[:], d.answer.State[len(d.plan.limits):])
	s.answer.Denied = d.answer.Denied >> len(d.plan.limits)
	s.answer.Allowed = s.answer.Denied == 0
	s.sum(store.ModeCharge)
	s.taken = 0
	return s
}

// Never says that a denied request costs more than a whole quota: waiting
// cannot help.
func (d Decision) Never() bool { return d.never() }

func (d *Decision) never() bool {
	return !d.Allowed && d.plan != nil && d.plan.alone.NeverFits(d.cost)
}

// Err is nil when the request was allowed, and a [*LimitedError] with the
// decision when it was not.
func (d Decision) Err() error {
	if d.Allowed {
		return nil
	}
	return &LimitedError{d}
}

// Undo gives back what this decision has taken: exactly those units, once, however
// often and by whoever it is called. When they have left the window, or after [Limiter.Reset], it
// does nothing; it never makes room for more than the quota. A denial has nothing to give back, also where it counts.
//
// An error says that the store could not be asked, so that the units may still be there.
func (d Decision) Undo(ctx context.Context) error { return d.settle(ctx, 0) }

// Settle makes this decision cost so many units, more or less than it has taken, as if it
// had from the beginning: for work whose cost is known when it is done, such as tokens or bytes.
// It may be called again, with the sum so far. More than the quota is recorded as such, and others wait until
// it has left. Where nothing was taken, or nothing is left of it, it does nothing.
//
// The cost is at least 0, which is [Decision.Undo], and at most [MaxQuota] (Redis: 10,000).
func (d Decision) Settle(ctx context.Context, cost int) error {
	if cost < 0 || cost > MaxQuota {
		return &ConfigError{Option: "Settle", Value: strconv.Itoa(cost), Reason: "a cost is 0 to " + strconv.Itoa(MaxQuota) + " units"}
	}
	return d.settle(ctx, cost)
}

func (d *Decision) settle(ctx context.Context, cost int) error {
	// A denial that counts may have pushed out older units: without it there would be room that was not there before.
	if d.taken == 0 || !d.Allowed {
		return nil
	}
	return d.limiter.settle(ctx, store.Settlement{Key: d.key, ID: d.id, Cost: cost}, d.Degraded)
}

// left is what limit i has left after this request.
func (d *Decision) left(i int) int {
	return max(0, d.plan.limits[i].Quota-d.answer.State[i].Used-d.taken)
}

// denies reports whether limit i is among those that denied.
func (d *Decision) denies(i int) bool { return !d.Allowed && d.answer.Denied.Has(i) }

// tightest is the limit with the least left; of a denial, among those that denied.
func (d *Decision) tightest() int {
	least := -1
	for i := range d.plan.limits {
		if d.Allowed || d.denies(i) {
			if least < 0 || d.left(i) < d.left(least) {
				least = i
			}
		}
	}
	return max(least, 0)
}

// violated shares the plan's names where they stand side by side, which they do in
// all but odd cases, so that a denial allocates nothing.
func (d *Decision) violated() []string {
	var names []string
	first := -1
	for i := range d.plan.limits {
		switch {
		case !d.denies(i):
		case first < 0:
			first = i
			names = d.plan.names[i : i+1 : i+1]
		case first+len(names) == i:
			names = d.plan.names[first : i+1 : i+1]
		default:
			first = len(d.plan.names) + 1 // no longer side by side: append copies
			names = append(names, d.plan.names[i])
		}
	}
	return names
}
