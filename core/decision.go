package core

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/sashlimit/sash/core/adapter"
	"github.com/sashlimit/sash/core/event"
	"github.com/sashlimit/sash/core/internal/engine"
	"github.com/sashlimit/sash/core/internal/gate"
	"github.com/sashlimit/sash/core/internal/limittext"
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
	Used       int           // units before this request, of the longest limit; if denied, of that which denied
	Policy     string        // name of the policy
	Violated   []string      // names of the limits that denied
	Banned     bool          // denied by [WithBan], whatever the limits say
	Overridden *Override     `json:"-"` // of a key of this request, or nil; see [WithOverrides]
	Degraded   bool          // decided without the store

	limiter *Limiter
	result  engine.Result
	served  *served // for the callback of WithRefund, or nil
}

// served is an allowed request for which the callback of WithRefund will be called.
type served struct {
	response adapter.Response
	decision Decision
}

// decide makes d of what the engine has found. Every decision that a limit or nothing has made is made here.
func (l *Limiter) decide(d *Decision) {
	r := &d.result
	d.limiter, d.Allowed, d.Granted, d.RetryAfter, d.Degraded = l, r.Allowed, r.Granted, r.Retry, r.Degraded
	if d.Policy = l.policy(); l.gate.Rules != nil {
		d.Policy = d.policyName()
	}
	if r.Override != nil {
		d.Overridden = publicOverride(r.Override)
	}
	switch r.Cause {
	case engine.ByBan:
		d.Banned, d.Violated, d.ResetAfter = true, []string{"ban"}, r.Retry
	case engine.ByOverride:
		d.Violated, d.ResetAfter = []string{"override"}, r.Retry
	case engine.ByLimits:
		if !d.Allowed {
			d.Violated = r.Denying()
		}
		d.Remaining, d.ResetAfter, d.Used = r.Numbers()
	case engine.ByNothing, engine.ByOpen: // nothing was counted, so there is nothing to report
	}
}

// policyName returns the name of the policy, or of the rule that has denied; if none has, of the first that applies.
func (d *Decision) policyName() string {
	for _, r := range [...]*engine.Result{&d.result, d.result.Shadow} { // all rules that apply may be in shadow
		if r != nil && r.Set != nil {
			if rule := r.Rule(); rule != nil {
				return rule.Policy
			}
		}
	}
	return d.limiter.policy()
}

// counts reports whether limits have decided.
func (d *Decision) counts() bool { return d.result.Cause == engine.ByLimits }

// shadow returns what the policy of WithShadow would have decided, or nil.
func (d *Decision) shadow() *Decision {
	if d.result.Shadow == nil {
		return nil
	}
	s := &Decision{result: *d.result.Shadow}
	d.limiter.decide(s)
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
// WithSkip. Limits of units that the request does not take are left out. So are those that were not asked because
// another one had denied: where a denial is answered from memory ([WithDenyCache]), and over several servers.
func (d *Decision) Limits() []LimitState {
	if !d.counts() {
		return nil
	}
	r := &d.result
	states := make([]LimitState, 0, len(r.Set.Limits))
	for i := range r.Set.Limits {
		if l, s := &r.Set.Limits[i], r.State(i); s.Told {
			states = append(states, LimitState{
				Name: l.Name, Unit: limittext.UnitName(l.Unit), Quota: l.Quota,
				Used: s.Used, Remaining: s.Left, ResetAfter: s.Reset, Denies: s.Denies,
			})
		}
	}
	return states
}

// Never reports whether the request was denied because it costs more than a whole quota, so that waiting cannot help.
func (d Decision) Never() bool { return d.never() }

func (d *Decision) never() bool { return d.counts() && d.result.Never }

// refused reports whether a ban or an override has denied, and no limit was asked.
func (d *Decision) refused() bool {
	return d.result.Cause == engine.ByBan || d.result.Cause == engine.ByOverride
}

// awaitsPermit reports whether too many requests at the same time are the cause of a denial.
func (d *Decision) awaitsPermit() bool { return d.counts() && d.result.AwaitsPermit() }

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
	d := &e.Decision
	over := strings.Join(d.Violated, ", ")
	switch {
	case d.never():
		return fmt.Sprintf("sash: limited by %s: the cost exceeds the quota", over)
	case d.awaitsPermit():
		return fmt.Sprintf("sash: limited by %s: too many requests at the same time", over)
	}
	return fmt.Sprintf("sash: limited by %s: try again in %v", over, d.RetryAfter.Round(time.Microsecond))
}

func (e *LimitedError) Unwrap() error {
	if e.Decision.never() {
		return ErrCostExceedsQuota
	}
	return nil
}

// Undo gives back the units that this decision has taken, exactly once, however often it is called, and ends what it
// holds, as [Decision.Release] does. After they have left the window, or after [Limiter.Reset], it does nothing; it
// never makes room for more than the quota. A denial has nothing to give back, even if it was recorded
// ([WithCountDenied]).
//
// An error means that the store has not answered, so the units may still be counted. Those of sliding logs are given
// back when it answers again; those of algorithms that count when Undo is called again.
func (d Decision) Undo(ctx context.Context) error {
	if d.result.Set == nil {
		return nil
	}
	return d.result.Undo(ctx)
}

// Release ends what the decision holds: a permit of each [InFlight], for other requests to take. It gives no units
// back. Middleware calls it when the handler has ended in whatever way; without HTTP, defer it:
//
//	d, err := limiter.Allow(ctx, "customer 7")
//	if err != nil || !d.Allowed {
//		return errors.Join(err, d.Err())
//	}
//	defer d.Release(context.WithoutCancel(ctx))
//
// It may be called again, and for a decision that holds nothing, as a denial: then it does nothing and returns nil. An
// error means that the store has not answered: then the permit is taken until it answers again, or until the lease ends
// ([Limit.Lease], which describes what happens to a permit that is never released).
func (d Decision) Release(ctx context.Context) error { return d.result.Release(ctx) }

// Settle changes the cost of this decision to cost units, more or less than it has taken, as if it had been that from
// the beginning: for work whose cost is known only afterwards, such as tokens or bytes. It may be called again, with
// the total so far. A cost above the quota is recorded as such, and other requests wait until it has left the window.
// If nothing was taken, or the units have left, it does nothing. Of a limit whose units all leave at the end of a
// period, it changes the sum of that period, and nothing after its end.
//
// The cost is at least 0, which is [Decision.Undo], and at most [MaxQuota].
func (d Decision) Settle(ctx context.Context, cost int) error {
	switch {
	case cost < 0 || cost > MaxQuota:
		return configError("Settle", strconv.Itoa(cost), "the cost is out of range",
			"pass 0 to "+strconv.Itoa(MaxQuota))
	case cost == 0:
		return d.Undo(ctx)
	case d.result.Set == nil:
		return nil
	}
	if err := d.result.Set.NoUnnamed("Settle"); err != nil {
		return err
	}
	unit := d.result.Set.Unit
	return d.result.Settle(ctx, func(l *engine.Limit) (int, bool) { return cost, l.Unit == unit })
}

// SettleCosts is [Decision.Settle] for units with names: see [Limit.Of]. Units that costs does not name stay as they
// are. A cost of 0 gives back what the decision has taken of the unit, for good. If it has taken nothing, the units are
// recorded then, at the instant of the decision, and after [Decision.Undo] as well.
func (d Decision) SettleCosts(ctx context.Context, costs Costs) error {
	if d.result.Set == nil {
		return nil
	}
	if err := costs.check("SettleCosts", d.result.Set, d.limiter.gate.Shadow); err != nil {
		return err
	}
	return d.result.Settle(ctx, func(l *engine.Limit) (int, bool) { return costs.of(l.Unit) })
}

// Again decides about more work of the same request, such as a further message of a stream: it takes what the decision
// was asked to take, once more, from the same keys. Overrides that have come or gone meanwhile apply, and so do the
// present periods of a calendar. It takes no permit of [InFlight], which the request has for its whole length. The new
// decision is settled or given back by itself, and has an [Event] of its own.
//
//	for {
//		if _, message, err = socket.ReadMessage(); err != nil {
//			return err
//		}
//		if next, err := decision.Again(ctx); err != nil || !next.Allowed {
//			return errors.Join(err, next.Err())
//		}
//		// ...
//	}
//
// A request that no limit was asked about, as by [WithSkip], is allowed again. A handler gets its request's decision by
// [DecisionFrom].
func (d Decision) Again(ctx context.Context) (next Decision, err error) {
	err = d.again(ctx, &next, false)
	return next, err
}

// WaitAgain is [Decision.Again] that waits until there is room, as [Limiter.Wait] does: for a stream that is slowed
// down in place of being refused.
func (d Decision) WaitAgain(ctx context.Context) (next Decision, err error) {
	err = d.again(ctx, &next, true)
	return next, err
}

func (d *Decision) again(ctx context.Context, next *Decision, waits bool) error {
	switch {
	case d.limiter == nil:
		return errNotLimited("Again")
	case d.result.Set == nil:
		*next = *d
		return nil
	}
	asked := gate.Asked{Cost: d.result.Cost, Mode: d.result.Mode, Began: d.limiter.begin(), Borrowed: true}
	if id := d.result.Identity(); id != nil {
		asked.Own[0] = *id
	}
	err := d.result.Again(ctx, waits, &next.result)
	if next.result.Set == nil {
		return d.limiter.failed(ctx, &asked, next, err)
	}
	if d.limiter.decide(next); err == nil && next.never() {
		err = next.Err()
	}
	d.limiter.report(ctx, &asked, next)
	return err
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
}

// NearLimit reports whether a request was allowed and leaves less than a fifth of a limit's quota.
func (e *Event) NearLimit() bool {
	d := &e.Decision
	if e.Outcome != event.Allowed || !d.counts() {
		return false
	}
	r := &d.result
	for i := range r.Set.Limits {
		if s := r.State(i); s.Told && 5*s.Left < r.Set.Limits[i].Quota {
			return true
		}
	}
	return false
}

// errNotLimited is for calls that need the key of a request which no limit was asked about.
func errNotLimited(call string) error {
	return configError(call, "a decision", "the request was not limited, so it has no key",
		"use decisions about limited requests only")
}

// Reset deletes what the key of the decision's request has used, as [Limiter.Reset] does for a text: with rules, what
// the rules that applied to the request have counted for their keys. It works for all keys, and for denials too. A
// handler gets its request's decision by [DecisionFrom], and an observer by [Event]. A decision about a request whose
// key was not read, as by [WithSkip], is a [ConfigError].
func (d Decision) Reset(ctx context.Context) error {
	if d.result.Set == nil {
		return errors.Join(d.result.Err, errNotLimited("Reset"))
	}
	return d.result.ResetKeys(ctx)
}
