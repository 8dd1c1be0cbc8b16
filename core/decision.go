package core

import (
	"fmt"
	"strings"
	"time"

	"github.com/sashlimit/sash/core/adapter"
	"github.com/sashlimit/sash/core/event"
	"github.com/sashlimit/sash/core/internal/inflight"
	"github.com/sashlimit/sash/core/internal/lifetime"
	"github.com/sashlimit/sash/core/internal/plan"
	"github.com/sashlimit/sash/core/internal/question"
	"github.com/sashlimit/sash/core/store"
)

// Decision is the result of one request. Its slices are shared: do not write to them. Printed or logged, it does not
// contain the key of the request.
//
// Granted is the cost of an allowed request, also of [Limiter.Record], and for [Limiter.AllowAtMost] as many units as
// there were. So many units were charged, except while [FailOpen] counts nothing. It is 0 if the request is denied,
// even if the denial was recorded ([WithCountDenied]), for [Limiter.Peek], and for a request that no limit decided
// about ([WithSkip], [WithAllowList]). [Decision.Undo] and [Decision.Settle] do not change it.
//
// Remaining and ResetAfter are of the limit with the least left, or if the limits count several units, of that with the
// smallest share left. If the request is denied, only limits that have denied are compared.
type Decision struct {
	Allowed    bool
	Granted    int           // units that this request may use; see below
	Remaining  int           // units left after this request, of the tightest limit; see below
	RetryAfter time.Duration // until this request fits if no other is admitted; zero if that is not known, or never
	ResetAfter time.Duration // until the oldest unit leaves that limit's window
	Used       int           // units in the window before this request, of the longest limit; 0 if not known
	Policy     string        // name of the policy
	Violated   []string      // names of the limits that denied
	Banned     bool          // denied by [WithBan], whatever the limits say
	Overridden *Override     `json:"-"` // of a key of this request, or nil; see [WithOverrides]
	Degraded   bool          // decided without the store

	storeErr error // why Degraded is set
	limiter  *Limiter
	q        question.Question
	began    time.Duration // time since the process started, or 0 if there are no observers
	borrowed bool          // the texts of keys may be in memory that a server uses again
	source   event.Source
	served   *served        // for the callback of WithRefund, or nil
	token    inflight.Token // released when Serve returns
}

// served is an allowed request for which the callback of WithRefund will be called.
type served struct {
	response adapter.Response
	decision Decision
}

// fill fills in the exported fields from the answer of the store.
func (d *Decision) fill() {
	d.Allowed, d.RetryAfter = d.q.Answer.Allowed, d.q.Answer.Retry
	d.Policy = d.policyName()
	if d.Allowed && d.q.Take.Mode != store.ModePeek {
		d.Granted = d.q.Take.Cost
	}
	if d.storeErr != nil && d.limiter.guard.Open() {
		d.q.Plan = nil // nothing was counted, so there is nothing to report
		return
	}
	if d.q.Take.Mode == store.ModeUpTo {
		d.Granted = d.q.Answer.Granted
	}
	d.q.SetTaken(d.Granted)
	if !d.Allowed {
		d.Violated = d.q.Plan.Denying(&d.q.Answer)
		if d.q.AwaitsPermit() {
			d.RetryAfter = 0 // nobody knows when a request ends
		}
	}
	least := d.q.Tightest()
	if least < 0 { // no limit that decides was asked
		return
	}
	d.Remaining, d.ResetAfter = d.q.Left(least), d.q.Reset(least)
	d.Used = d.q.Answer.State[d.q.Plan.Longest].Used
}

// policyName returns the name of the policy, or of the rule that has denied; if none has, of the first that applies.
func (d *Decision) policyName() string {
	if d.q.Plan == nil || d.q.Plan.Rule == nil {
		return d.limiter.namespace.Policy()
	}
	return d.q.Rule().Policy
}

// shadow returns what the shadow policy would have decided.
func (d *Decision) shadow() *Decision {
	s := &Decision{limiter: d.limiter, q: d.q.Shadow()}
	s.fill()
	if s.q.TakeNothing(); d.q.Take.Mode == store.ModePeek {
		s.Granted = 0
	}
	return s
}

// LimitState is a limit of a decision; see [Decision.Limits].
type LimitState struct {
	Name       string        // as in the header fields
	Unit       string        // what it counts, such as "requests"; see [Limit.Of]
	Quota      int           // units, of a token bucket those that a full one has
	Used       int           // units in the window before this request, or requests in flight
	Remaining  int           // units left after this request
	ResetAfter time.Duration // until the oldest unit leaves the window; 0 if there is none, and for requests in flight
	Denies     bool          // this limit has denied
}

// Limits returns the limits that decided about this request, as they are after it. It is empty if none did, as with
// WithSkip. Limits of units that the request does not take are left out. So are those of keys and units that have room
// where a denial is answered from memory ([WithDenyCache]), since only what denies is known then.
func (d *Decision) Limits() []LimitState {
	if d.q.Plan == nil || d.Overridden != nil && d.Overridden.Denied {
		return nil
	}
	if d.Banned && d.q.Answer.Denied == 0 { // before this request: only the denial that begins a ban is one by limits
		return nil
	}
	states := make([]LimitState, 0, len(d.q.Plan.Limits))
	for i := range d.q.Plan.Limits {
		l := &d.q.Plan.Limits[i]
		if !d.q.Tells(i) {
			continue
		}
		states = append(states, LimitState{
			Name: l.Name, Unit: plan.UnitName(l.Unit), Quota: l.Quota,
			Used: d.q.Answer.State[i].Used, Remaining: d.q.Left(i), ResetAfter: d.q.Reset(i), Denies: d.q.Denies(i),
		})
	}
	return states
}

// Never reports whether the request was denied because it costs more than a whole quota, so that waiting cannot help.
func (d Decision) Never() bool { return d.never() }

func (d *Decision) never() bool {
	return d.q.Plan != nil && !(d.Overridden != nil && d.Overridden.Denied) && d.q.Never()
}

// refused reports whether a ban or an override has denied, and no limit was asked.
func (d *Decision) refused() bool { return d.Banned || d.Overridden != nil && d.Overridden.Denied }

// refuse denies, whatever the limits say. A ban or an override causes it.
func (d *Decision) refuse(cause string, wait time.Duration) {
	d.Allowed, d.Violated, d.Policy = false, []string{cause}, d.policyName()
	d.Remaining, d.RetryAfter, d.ResetAfter = 0, wait, wait
}

// Err returns nil if the request was allowed, and otherwise a [*LimitedError] with the decision.
func (d Decision) Err() error {
	if d.Allowed {
		return nil
	}
	return &LimitedError{d}
}

// LimitedError is a denial as an error; see [Decision.Err]. It wraps [ErrCostExceedsQuota] if waiting cannot help.
type LimitedError struct{ Decision Decision }

func (e *LimitedError) Error() string {
	d := e.Decision
	over := strings.Join(d.Violated, ", ")
	if d.Never() {
		return fmt.Sprintf("sash: limited by %s: the cost exceeds the quota", over)
	}
	if d.q.Plan != nil && d.q.AwaitsPermit() && !d.refused() {
		return fmt.Sprintf("sash: limited by %s: too many requests at the same time", over)
	}
	return fmt.Sprintf("sash: limited by %s: try again in %v", over, d.RetryAfter.Round(time.Microsecond))
}

func (e *LimitedError) Unwrap() error {
	if e.Decision.Never() {
		return ErrCostExceedsQuota
	}
	return nil
}

// cloneKeys makes the decision independent of the memory that its keys were read from.
func (d *Decision) cloneKeys() {
	d.borrowed = false
	d.q.Clone()
}

// Event is what an observer gets. Each request, and each call of [Limiter.Allow], Peek, Record and Wait, causes exactly
// one event whose Outcome is that of a decision; other events come in addition ([event.Outcome]). A counter by Policy
// and Outcome needs no special cases.
//
// Printed, logged or written as JSON, an Event leaves out Key and the text of Err.
//
// An Event may be kept. Key of a call such as Allow is the text that was passed to it, so pass a copy of a text whose
// memory is reused, such as a parameter of fiber.
type Event struct {
	Policy   string // name of the policy
	Outcome  event.Outcome
	Source   event.Source  // where the decision came from
	Mode     store.Mode    // of the take, such as store.ModePeek
	Cost     int           // units requested; Decision.Granted is how many were granted
	Took     time.Duration // time until the decision; for Wait, including the wait
	Decision Decision      // the zero Decision if there is none
	Shadow   *Decision     // what the policy of [WithShadow] would have decided, or nil
	Key      string        `json:"-"` // whose quota it is. It may be personal data
	Err      error         `json:"-"` // why there is no decision, or why it is Degraded, or nil

	life *lifetime.Lifetime // of the limiter, or nil if no limiter has made the event
}

// Keep is for observers that keep something for each policy, such as metrics: k is what they keep for Policy. It
// reports whether the limiter that made the event is open. If not, the event is late: count nothing for it.
//
// Keep calls k.Opened if this limiter was not given k before, and [Limiter.Close] then calls k.Closed, on its own
// goroutine. When Closed was called as often as Opened, no limiter of the policy is left. Opened must not block, and
// must not call this limiter. k must be comparable, as pointers are. Call Keep for each event: it takes some
// nanoseconds. A panic of Closed is dropped.
func (e *Event) Keep(k interface {
	Opened()
	Closed()
},
) (open bool) {
	return e.life == nil || e.life.Keep(k)
}

// NearLimit reports whether a request was allowed and leaves less than a fifth of a limit's quota.
func (e *Event) NearLimit() bool {
	d := &e.Decision
	return e.Outcome == event.Allowed && d.q.Plan != nil &&
		d.q.Find(func(i int) bool { return 5*d.q.Left(i) < d.q.Plan.Limits[i].Quota }) >= 0
}
