package core

import (
	"fmt"
	"strings"
	"time"
	"unsafe"

	"github.com/sashlimit/sash/core/adapter"
	"github.com/sashlimit/sash/core/event"
	"github.com/sashlimit/sash/core/internal/guard"
	"github.com/sashlimit/sash/core/internal/inflight"
	"github.com/sashlimit/sash/core/internal/lifetime"
	"github.com/sashlimit/sash/core/internal/plan"
	"github.com/sashlimit/sash/core/internal/slots"
	"github.com/sashlimit/sash/core/store"
)

// Decision is the result of one request. Its slices are shared: do not write to them. Printed or logged, it does not
// contain the key of the request.
//
// Granted is the cost of an allowed request, also of [Limiter.Record], and for [Limiter.AllowAtMost] as many units as
// there were. So many units were charged, except while [FailOpen] counts nothing. It is 0 if the request is denied,
// even if the denial was recorded ([WithCountDenied]), for [Limiter.Peek], and for a request that no limit decided
// about ([WithSkip], [WithAllowList]). [Decision.Undo] and [Decision.Settle] do not change it.
type Decision struct {
	Allowed    bool
	Granted    int           // units that this request may use; see below
	Remaining  int           // units left after this request, of the limit with the least left
	RetryAfter time.Duration // until this request fits if no other is admitted; zero if that is not known, or never
	ResetAfter time.Duration // until the oldest unit leaves that limit's window
	Used       int           // units in the window before this request, of the longest limit
	Policy     string        // name of the policy
	Violated   []string      // names of the limits that denied
	Banned     bool          // denied by [WithBan], whatever the limits say
	Overridden *Override     `json:"-"` // of a key of this request, or nil; see [WithOverrides]
	Degraded   bool          // decided without the store

	storeErr error // why Degraded is set
	limiter  *Limiter
	plan     *plan.Plan    // nil if no limit was evaluated, as for a skipped request
	take     store.Take    // of the limiter's key: what the first log was asked, unless more is set
	answer   store.Answer  // of the logs
	more     *logTakes     // nil if there is one log, which is that of the limiter's key
	began    time.Duration // time since the process started, or 0 if there are no observers
	borrowed bool          // the texts of keys may be in memory that a server uses again
	source   event.Source
	taken    int            // units that were recorded, of the unit of costs without a name
	served   *served        // for the callback of WithRefund, or nil
	token    inflight.Token // released when Serve returns
	leased   guard.Use      // unless more is set
}

// logTakes is what a decision asks each of its logs, and is answered. One log of the limiter's key needs none: its take
// and answer are those of the [Decision], so that they are not allocated.
type logTakes struct {
	logs    []*plan.Log // of the plan; those that are not asked, as the request costs none of their units, are last
	takes   []store.Take
	answers []store.Answer
	asked   int                  // how many logs are asked
	costs   [store.MaxLimits]int // units of each limit, 1 of one of permits; 0 if it is not asked

	recorded bool        // units were recorded, or would be if the request cost any
	at       time.Time   // when the request was decided, if some logs were not asked
	held     *slots.Held // the permits that the decision holds, or nil
	leased   []guard.Use // of each log that was asked, or nil
}

// newLogTakes makes them for logs that are all asked. Most requests have two, which take one allocation.
func newLogTakes(logs []*plan.Log) *logTakes {
	n := len(logs)
	if n > 2 {
		return &logTakes{logs: logs, takes: make([]store.Take, n), answers: make([]store.Answer, n), asked: n}
	}
	two := new(struct {
		logTakes

		takes   [2]store.Take
		answers [2]store.Answer
	})
	two.logTakes = logTakes{logs: logs, takes: two.takes[:n], answers: two.answers[:n], asked: n}
	return &two.logTakes
}

// price finds the logs that a request is asked about: those of units of which it costs something. Of units that costs
// does not name it costs unnamed. The limits of requests in flight are always asked.
func (d *Decision) price(pl *plan.Plan, costs Costs, unnamed int) {
	if pl.Units == nil && d.take.Cost != 0 { // then that is all
		return
	}
	var asked, free []*plan.Log
	var units [store.MaxLimits]int // of asked
	for _, log := range pl.Logs {
		cost, named := costs.of(log.Unit())
		switch {
		case log.InFlight():
			cost = 1
		case log.Unit() == pl.Unit:
			cost = d.take.Cost
		case !named:
			cost = unnamed
		}
		if cost == 0 {
			free = append(free, log)
			continue
		}
		units[len(asked)] = min(cost, MaxQuota+1)
		asked = append(asked, log)
	}
	d.more = newLogTakes(append(asked, free...))
	d.more.asked = len(asked)
	for i := range asked {
		d.more.takes[i].Cost = units[i]
	}
}

// asked returns what each log is asked, and its answer. The slices are d's own memory, so they must not be kept: d
// would be on the heap.
func (d *Decision) asked() ([]store.Take, []store.Answer) {
	if d.more != nil {
		return d.more.takes[:d.more.asked], d.more.answers[:d.more.asked]
	}
	return unsafe.Slice(&d.take, 1), unsafe.Slice(&d.answer, 1) //nolint:gosec // a slice of a variable is safe
}

// logs returns the logs of the plan: first those that are asked.
func (d *Decision) logs() []*plan.Log {
	if d.more != nil {
		return d.more.logs
	}
	return d.plan.Logs
}

// at returns what a log is asked, and its answer. The log is an index of logs.
func (d *Decision) at(log int) (*store.Take, *store.Answer) {
	if d.more != nil {
		return &d.more.takes[log], &d.more.answers[log]
	}
	return &d.take, &d.answer
}

// leasedOf returns what the decision has spent of a lease in a log, which is an index of logs.
func (d *Decision) leasedOf(log int) (of guard.Use) {
	switch {
	case d.more == nil:
		return d.leased
	case log < len(d.more.leased):
		return d.more.leased[log]
	}
	return of
}

// held returns the permits that the decision holds, or nil.
func (d *Decision) held() *slots.Held {
	if d.more == nil {
		return nil
	}
	return d.more.held
}

// served is an allowed request for which the callback of WithRefund will be called.
type served struct {
	response adapter.Response
	decision Decision
}

// fill fills in the exported fields from the answer of the store.
func (d *Decision) fill() {
	d.Allowed, d.RetryAfter = d.answer.Allowed, d.answer.Retry
	d.Policy = d.policyName()
	if d.Allowed && d.take.Mode != store.ModePeek {
		d.Granted = d.take.Cost
	}
	if d.storeErr != nil && d.limiter.guard.Open() {
		d.plan = nil // nothing was counted, so there is nothing to report
		return
	}
	if d.take.Mode == store.ModeUpTo {
		d.Granted = d.answer.Granted
	}
	d.taken = d.Granted
	if !d.Allowed {
		d.Violated = d.plan.Denying(&d.answer)
		if d.awaitsPermit() {
			d.RetryAfter = 0 // nobody knows when a request ends
		}
		if d.take.Mode == store.ModeChargeDenied && !d.never() {
			d.taken = d.take.Cost
		}
	}
	if d.more != nil {
		d.more.recorded = d.taken > 0 || d.Allowed && d.take.Mode != store.ModePeek
	}
	least := d.tightest()
	if least < 0 { // no limit that decides was asked
		return
	}
	d.Remaining, d.ResetAfter = d.left(least), d.reset(least)
	d.Used = d.answer.State[d.plan.Longest].Used
}

// policyName returns the name of the policy, or of the rule that has denied; if none has, of the first that applies.
func (d *Decision) policyName() string {
	if d.plan == nil || len(d.plan.Rules) == 0 {
		return d.limiter.namespace.Policy()
	}
	return d.rule().Policy
}

// rule returns the rule of the first limit that has denied, or the first rule.
func (d *Decision) rule() *plan.Rule { return d.plan.Rules[max(0, d.find(d.denies))] }

// find returns the first limit for which is returns true, or -1.
func (d *Decision) find(is func(limit int) bool) int {
	for i := range d.plan.Limits {
		if is(i) {
			return i
		}
	}
	return -1
}

// shadow returns what the shadow policy would have decided.
func (d *Decision) shadow() *Decision {
	s := &Decision{limiter: d.limiter, plan: d.plan.Shadow, take: store.Take{Cost: d.take.Cost}}
	s.answer = store.Answer{Retry: d.answer.Shadow}
	copy(s.answer.State[:], d.answer.State[len(d.plan.Limits):])
	s.answer.Denied = d.answer.Denied >> len(d.plan.Limits)
	s.answer.Allowed = s.answer.Denied == 0
	if d.take.Mode == store.ModeUpTo {
		s.answer.Granted = s.plan.Grant(&s.answer, d.take.Cost)
		s.take.Mode = d.take.Mode
	}
	if d.more != nil {
		s.more = new(logTakes)
		copy(s.more.costs[:], d.more.costs[len(d.plan.Limits):])
	}
	s.fill()
	if s.taken = 0; s.more != nil {
		s.more.recorded = false
	}
	if d.take.Mode == store.ModePeek {
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
// WithSkip. Limits of units that the request does not take are left out.
func (d *Decision) Limits() []LimitState {
	if d.plan == nil || d.Overridden != nil && d.Overridden.Denied {
		return nil
	}
	states := make([]LimitState, 0, len(d.plan.Limits))
	for i := range d.plan.Limits {
		l := &d.plan.Limits[i]
		if !d.asks(i) {
			continue
		}
		states = append(states, LimitState{
			Name: l.Name, Unit: plan.UnitName(l.Unit), Quota: l.Quota,
			Used: d.answer.State[i].Used, Remaining: d.left(i), ResetAfter: d.reset(i), Denies: d.denies(i),
		})
	}
	return states
}

// asks reports whether the request was asked about limit i.
func (d *Decision) asks(i int) bool { return d.more == nil || d.more.costs[i] > 0 }

// Never reports whether the request was denied because it costs more than a whole quota, so that waiting cannot help.
func (d Decision) Never() bool { return d.never() }

func (d *Decision) never() bool {
	if d.Allowed || d.plan == nil || d.Overridden != nil && d.Overridden.Denied {
		return false
	}
	return d.find(func(i int) bool { return !d.plan.Limits[i].InFlight && !d.fits(i) }) >= 0
}

// fits reports whether the units that the request needs of limit i are within its quota.
func (d *Decision) fits(i int) bool {
	return d.take.Mode == store.ModeUpTo || d.cost(i) <= d.plan.Limits[i].Quota
}

// cost returns how many units of limit i the request costs.
func (d *Decision) cost(i int) int {
	if d.more != nil {
		return d.more.costs[i]
	}
	return d.take.Cost
}

// refused reports whether a ban or an override has denied, and no limit was asked.
func (d *Decision) refused() bool { return d.Banned || d.Overridden != nil && d.Overridden.Denied }

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
	if d.plan != nil && d.awaitsPermit() && !d.refused() {
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

// left returns what limit i has left after this request.
func (d *Decision) left(i int) int {
	return max(0, d.plan.Limits[i].Quota-d.answer.State[i].Used-d.takenOf(i))
}

// takenOf returns how many units of limit i were recorded.
func (d *Decision) takenOf(i int) int {
	if d.more == nil {
		return d.taken
	}
	switch limit := &d.plan.Limits[i]; {
	case !d.more.recorded || limit.InFlight && !d.takesPermits():
		return 0
	case limit.InFlight || limit.Unit != d.plan.Unit:
		return d.more.costs[i]
	}
	return d.taken
}

// recorded reports whether units were recorded.
func (d *Decision) recorded() bool { return d.taken > 0 || d.more != nil && d.more.recorded }

// takesPermits reports whether this request has taken a permit of each limit of requests in flight. All that takes
// units does, except Record.
func (d *Decision) takesPermits() bool {
	return d.Allowed && d.recorded() && d.take.Mode != store.ModeRecord
}

// reset returns how long it takes until the oldest unit leaves the window of limit i: 0 if the limit has none.
func (d *Decision) reset(i int) time.Duration {
	if d.plan.Limits[i].InFlight {
		return 0
	}
	return d.answer.State[i].Reset
}

// awaitsPermit reports whether a limit of requests in flight has denied.
func (d *Decision) awaitsPermit() bool {
	return d.find(func(i int) bool { return d.plan.Limits[i].InFlight && d.denies(i) }) >= 0
}

// denies reports whether limit i has denied.
func (d *Decision) denies(i int) bool { return !d.Allowed && d.answer.Denied.Has(i) }

// tightest returns the limit with the least left, or if they count several units with the smallest share left; for a
// denial, only limits that denied are compared. It returns -1 if no limit was asked.
func (d *Decision) tightest() int {
	limits := d.plan.Limits
	if len(limits) == 1 && d.more == nil {
		return 0
	}
	least, leastLeft := -1, 0
	for i := range limits {
		if !d.asks(i) || !d.Allowed && !d.denies(i) {
			continue
		}
		left := d.left(i)
		tighter := least < 0 || left < leastLeft
		if least >= 0 && len(d.plan.Units) > 0 { // units cannot be compared
			tighter = left*limits[least].Quota < leastLeft*limits[i].Quota
		}
		if tighter {
			least, leastLeft = i, left
		}
	}
	return least
}

// cloneKeys makes the decision independent of the memory that its keys were read from.
func (d *Decision) cloneKeys() {
	d.borrowed = false
	d.take.Key.Identity = d.take.Key.Clone()
	if d.more == nil {
		return
	}
	own := newLogTakes(d.more.logs) // others may use the old ones
	takes, answers := own.takes, own.answers
	*own = *d.more
	own.takes, own.answers = takes, answers
	copy(own.takes, d.more.takes)
	for i := range own.takes {
		own.takes[i].Key.Identity = own.takes[i].Key.Clone()
	}
	d.more = own
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
	return e.Outcome == event.Allowed && d.plan != nil &&
		d.find(func(i int) bool { return 5*d.left(i) < d.plan.Limits[i].Quota }) >= 0
}
