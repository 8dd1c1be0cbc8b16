package core

import (
	"time"
	"unsafe"
)

// Decision is the answer to one request. Its slices are shared: do not write
// to them.
type Decision struct {
	Allowed    bool
	Remaining  int           // units left after this request, of the limit with the least left
	RetryAfter time.Duration // until this request would be allowed, if nobody else comes; zero when it is, or never will be
	ResetAfter time.Duration // until the oldest unit leaves that limit's window
	Used       int           // units in the window before this request, of the longest limit
	Policy     string        // its name
	Violated   []string      // names of the limits that denied
	Degraded   bool          // decided without the store

	limiter  *Limiter
	plan     *plan // nil when nothing was decided, as for a skipped request
	answer   Answer
	cost     int            // units recorded or asked for
	taken    int            // units recorded: cost or nothing
	exchange unsafe.Pointer // open until Done
}

// sum fills in what everybody may read from what the store has answered.
func (d *Decision) sum(peek bool) {
	d.Allowed, d.RetryAfter, d.Policy = d.answer.Allowed, d.answer.Retry, d.limiter.space.name
	if !d.Allowed {
		d.Violated = d.violated()
	} else if !peek {
		d.taken = d.cost
	}
	least := d.tightest()
	d.Remaining, d.ResetAfter = d.left(least), d.answer.State[least].Reset
	d.Used = d.answer.State[d.plan.longest].Used
}

// Never says that a denied request costs more than a whole quota: waiting
// cannot help.
func (d Decision) Never() bool {
	if d.Allowed || d.plan == nil {
		return false
	}
	for i := range d.plan.limits {
		if d.cost > d.plan.limits[i].Quota {
			return true
		}
	}
	return false
}

// Err is nil when the request was allowed, and a [*LimitedError] with the
// decision when it was not.
func (d Decision) Err() error {
	if d.Allowed {
		return nil
	}
	return &LimitedError{d}
}

// Done is for adapters: the exchange has ended. It must be called for every
// decision of [Limiter.Check], also when the handler panics.
func (d Decision) Done() {
	if d.exchange != nil {
		d.limiter.once.leave(d.exchange)
	}
}

// left is what limit i has left after this request.
func (d *Decision) left(i int) int {
	return max(0, d.plan.limits[i].Quota-d.answer.State[i].Used-d.taken)
}

// denies reports whether limit i is among those that denied.
func (d *Decision) denies(i int) bool {
	return !d.Allowed && d.answer.State[i].Used+d.cost > d.plan.limits[i].Quota
}

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
