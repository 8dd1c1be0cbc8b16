package engine

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/sashlimit/sash/core/event"
	"github.com/sashlimit/sash/core/store"
)

// Ask is what a request asks a [Set]. Its slices are not kept.
type Ask struct {
	Identities []store.Identity // of Set.Keys
	Cost       int              // of costs without a name: 0 to MaxQuota, more never fits
	Costs      []int            // of Set.Units, 0 leaves limits out; nil: Cost of Set.Unit, and none of the others
	Mode       store.Mode
	NoPermits  bool   // the request holds permits of this limiter already, so it takes no more
	Waits      bool   // until it is admitted: see Engine.wait
	Shadow     *Trial // what is tried out beside it, or nil: see Result.Shadow
}

// mostCost is what a request is asked for at most.
const mostCost = store.MaxQuota + 1

// cost returns what the request is asked for by a limit, 0 if it is left out. Limits of requests in flight are always
// asked, unless the request is only recorded. A larger cost than [mostCost] is denied too, but would overflow sums.
func (a *Ask) cost(l *Limit) int {
	switch {
	case l.InFlight && (a.NoPermits || a.Mode == store.ModeRecord):
		return 0
	case l.InFlight:
		return max(a.Cost, 1)
	case a.Costs != nil:
		return min(a.Costs[l.unit], mostCost)
	case l.unnamed:
		return min(a.Cost, mostCost)
	}
	return 0
}

// Trial is what a request asks limits that are tried out, which deny nobody: a set of [Engine.Compile],
// [Engine.Choose] or [Engine.Combine]. The mode is that of the request.
type Trial struct {
	Set *Set
	Ask Ask
}

// Decide makes every decision. It fills r in, which must be zero. With an error r stays zero, since there is no
// decision: it is a [store.StoreError], or a [store.ConfigError] if the request can never be decided.
func (e *Engine) Decide(ctx context.Context, set *Set, a *Ask, r *Result) error {
	switch {
	case a.Waits:
		return e.wait(ctx, set, a, r)
	case e.config.Spread == nil || a.Mode == store.ModePeek:
		return e.decide(ctx, set, a, r)
	}
	ctx, cancel := e.store.Within(ctx)
	defer cancel()
	err := e.decide(ctx, set, a, r)
	if err == nil {
		e.spreadOut(ctx, r)
	}
	return err
}

// decide decides, with waits that are the same for all requests that are denied at one time.
func (e *Engine) decide(ctx context.Context, set *Set, a *Ask, r *Result) (err error) {
	r.engine, r.Mode, r.Cost = e, a.Mode, a.Cost
	if e.overrides != nil {
		set = e.override(ctx, set, a, r)
	}
	if r.makeTakes(set, a); r.Cause == ByOverride {
		r.asks = 0
		return nil
	}
	if e.ban != nil && a.Mode != store.ModeRecord {
		err = e.chargeUnlessBanned(ctx, a, r)
	} else {
		err = e.ask(ctx, a, r)
	}
	if err == nil {
		return nil
	}
	if *r = (Result{}); errors.As(err, new(*store.ConfigError)) {
		return err
	}
	return store.Error(err)
}

// ask asks the limits of a request.
func (e *Engine) ask(ctx context.Context, a *Ask, r *Result) (err error) {
	if a.Shadow != nil {
		return e.askBoth(ctx, a, r)
	}
	if r.asks == 0 { // the request costs nothing, or there is no limit
		r.Allowed, r.Granted = true, a.granted()
		return nil
	}
	takes, answers := r.all()
	apart := r.asks < len(takes) || !r.Set.inOrder
	if apart {
		takes, answers = r.gather()
	}
	if e.config.Guard.Lease > 0 && r.Set.leasable {
		r.use, r.Source, err = e.store.guard.TakeLeased(ctx, takes, answers)
	} else {
		r.Source, err = e.store.take(ctx, takes, answers)
	}
	if apart {
		r.put(takes, answers)
	}
	if err != nil && r.Source != event.Local {
		return err
	}
	if r.Cause = ByLimits; err != nil {
		r.Degraded, r.Err = true, err
		if e.store.Open() {
			r.Cause = ByOpen
		}
	}
	r.sum(a)
	if r.Set.InFlight && r.Records() {
		e.hold(ctx, r)
	}
	return nil
}

// refuse denies whatever the limits say. They are not told.
func (r *Result) refuse(by Cause, wait time.Duration) {
	r.Allowed, r.Granted, r.Cause, r.Retry, r.asks, r.Never = false, 0, by, wait, 0, false
}

// granted returns how many units the request may use if it is admitted.
func (a *Ask) granted() int {
	if a.Mode == store.ModePeek {
		return 0
	}
	return min(a.Cost, mostCost)
}

// makeTakes makes a take for each limit.
func (r *Result) makeTakes(set *Set, a *Ask) {
	r.Set, r.resets = set, r.engine.resets.Load()
	mode, endless := a.Mode, false
	switch {
	case a.Mode == store.ModeRecord && set.counters: // which has the same effect, and these have no other mode for it
		mode, endless = store.ModeCharge, true
	case a.Mode == store.ModeChargeDenied && a.neverFits(set):
		mode = store.ModeCharge // a request that never fits is not recorded
	}
	if n := len(set.Limits); n > len(r.few) {
		r.more = &many{make([]store.Take, n), make([]store.Answer, n)}
	}
	takes, _ := r.all()
	for i := range takes {
		t, l := &takes[i], &set.Limits[i]
		t.Key.Namespace = l.key.Namespace
		t.Key.Identity = a.Identities[l.Key] // a statement of its own, as otherwise it is copied twice
		t.Limit, t.Cost, t.Mode = l.log.stored(endless || l.unlimited), a.cost(l), mode
		if t.Cost > 0 {
			r.asks++
		}
		if t.Cost == 0 || set.counters && !r.engine.store.isFar && !l.KeepsEntries() {
			t.ID = newID() // for a settlement: the others get one of the guard, or in memory of their log
		}
	}
	if r.engine.store.isFar || r.asks < len(takes) {
		r.at = time.Since(processStart)
	}
}

// neverFits reports whether a limit is asked for more than its quota.
func (a *Ask) neverFits(set *Set) bool {
	for i := range set.Limits {
		if l := &set.Limits[i]; l.Store().NeverFits(a.cost(l)) {
			return true
		}
	}
	return false
}

var processStart = time.Now()

func newID() uint64 { return rand.Uint64() | 1 }

// gather returns the takes that cost something, with those of one key one after the other, and room for the answers.
func (r *Result) gather() (takes []store.Take, answers []store.Answer) {
	all, _ := r.all()
	for _, limit := range r.Set.order {
		if all[limit].Cost > 0 {
			takes = append(takes, all[limit])
		}
	}
	return takes, make([]store.Answer, len(takes))
}

// put puts what was gathered back to its limits.
func (r *Result) put(takes []store.Take, answers []store.Answer) {
	all, of := r.all()
	for _, limit := range r.Set.order {
		if all[limit].Cost > 0 {
			all[limit].ID, of[limit] = takes[0].ID, answers[0]
			takes, answers = takes[1:], answers[1:]
		} else {
			of[limit].Allowed = true
		}
	}
}

// many is the takes of a request with more than two limits, and what their logs have answered.
type many struct {
	takes   []store.Take
	answers []store.Answer
}

// all returns the takes of all limits, in their order, and the answers. A take of no cost is not asked. The slices are
// r's own memory, so they must not be kept: r would be on the heap.
func (r *Result) all() ([]store.Take, []store.Answer) {
	if r.more != nil {
		return r.more.takes, r.more.answers
	}
	n := len(r.Set.Limits)
	return r.few[:n], r.fewAnswers[:n]
}

// sum makes the decision of the answers.
func (r *Result) sum(a *Ask) {
	takes, answers := r.all()
	r.Allowed = true
	for i := range answers {
		r.Allowed = r.Allowed && answers[i].Allowed
	}
	switch {
	case r.Allowed && a.Mode == store.ModeAtMost && r.Cause == ByLimits:
		for i := range answers { // all that were asked have granted as many
			r.Granted = max(r.Granted, answers[i].Granted)
		}
	case r.Allowed:
		r.Granted = a.granted()
	default:
		for i := range takes {
			r.Never = r.Never || takes[i].Cost > 0 && !r.mayFit(&takes[i])
		}
		if r.Never || r.AwaitsPermit() { // nobody knows when a request ends
			return
		}
		for i := range answers {
			r.Retry = max(r.Retry, answers[i].Retry)
		}
	}
}
