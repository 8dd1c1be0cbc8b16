package engine

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/sashlimit/sash/core/event"
	"github.com/sashlimit/sash/core/internal/permits"
	"github.com/sashlimit/sash/core/store"
)

// Ask is what a request asks a [Set]. Its slices are not kept.
type Ask struct {
	Identities []store.Identity // of Set.Keys
	Cost       int              // of costs without a name: 0 to MaxQuota, more never fits
	Costs      []int            // of Set.Limits, 0 leaves one out; nil: Cost of the limits of Set.Unit, and no others
	Mode       store.Mode
	Tries      bool   // a denial counts towards a ban
	NoPermits  bool   // the request holds permits of this limiter already, so it takes no more
	Shadow     *Trial // what is tried out beside it, or nil: see Result.Shadow
}

// mostCost is what a request is asked for at most.
const mostCost = store.MaxQuota + 1

// cost returns what the request is asked for by a limit, 0 if it is left out. Limits of requests in flight are always
// asked, unless the request is only recorded. A larger cost than [mostCost] is denied the same, but would overflow
// sums.
func (a *Ask) cost(set *Set, limit int) int {
	l := &set.Limits[limit]
	switch {
	case l.InFlight && (a.NoPermits || a.Mode == store.ModeRecord):
		return 0
	case l.InFlight:
		return max(a.Cost, 1)
	case a.Costs != nil:
		return min(a.Costs[limit], mostCost)
	case l.unnamed:
		return min(a.Cost, mostCost)
	}
	return 0
}

// Trial is what a request asks limits that are tried out, which deny nobody: a set of [Engine.Shadow] or
// [Engine.Combine]. The mode is that of the request.
type Trial struct {
	Set *Set
	Ask Ask
}

// Decide makes every decision. It fills r in, which must be zero. With an error r stays zero, since there is no
// decision: it is a [store.StoreError], or a [store.ConfigError] if the request can never be decided.
func (e *Engine) Decide(ctx context.Context, set *Set, a *Ask, r *Result) error {
	if e.config.Spread == nil || !a.Tries {
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
		before := set
		var with Ask
		if set, with = e.override(ctx, set, a, r); with.Identities != nil {
			r.base = newBase(before, a)
			a = &with
		}
	}
	if r.makeTakes(set, a); r.Cause == ByOverride {
		r.asks = 0
		return nil
	}
	if e.ban != nil && a.Mode != store.ModeRecord {
		err = e.chargeUnlessBanned(ctx, a, r)
	} else {
		err = e.charge(ctx, a, r)
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
	if r.asks == 0 { // the request costs nothing, or there is no limit
		r.Allowed, r.Granted = true, a.granted()
		return nil
	}
	takes, answers := r.asked()
	if e.store.lease > 0 && r.Set.leasable {
		r.use, r.Source, err = e.store.guard.TakeLeased(ctx, takes, answers)
	} else {
		r.Source, err = e.store.take(ctx, takes, answers)
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
	if r.Set.holds && r.Allowed && r.Cause == ByLimits {
		e.hold(ctx, r)
	}
	return nil
}

// refuse denies whatever the limits say. They are not told.
func (r *Result) refuse(by Cause, wait time.Duration) {
	r.Allowed, r.Granted, r.Cause, r.Retry, r.asks, r.never = false, 0, by, wait, 0, false
}

// granted returns how many units the request may use if it is admitted.
func (a *Ask) granted() int {
	if a.Mode == store.ModePeek {
		return 0
	}
	return min(a.Cost, mostCost)
}

// makeTakes makes a take for each limit, which is the only one in most sets.
func (r *Result) makeTakes(set *Set, a *Ask) {
	r.Set, r.sent, r.resets = set, a.Mode, r.engine.resets.Load()
	endless := a.Mode == store.ModeRecord && set.counters
	if endless { // which has the same effect, and algorithms that count have no other mode for it
		r.sent = store.ModeCharge
	}
	if !r.makeFew(a, endless) {
		r.makeList(a, endless)
	}
	if e := r.engine; e.store.isFar || r.asks < r.takes {
		r.at = time.Since(processStart)
	}
	for i := r.asks; i < r.takes; i++ { // what is recorded later needs an ID
		r.all()[i].ID = newID()
	}
}

var processStart = time.Now()

func newID() uint64 { return rand.Uint64() | 1 }

// makeFew makes the takes of a request with one or two limits, without an allocation. It returns false if a list is
// needed: for more, for permits, and if only one of two is asked.
func (r *Result) makeFew(a *Ask, endless bool) bool {
	n, asks := len(r.Set.Limits), 0
	if n > len(r.few) || r.Set.holds {
		return false
	}
	for limit := range n {
		if r.makeTake(a, &r.few[limit], limit, endless); r.few[limit].Cost > 0 {
			asks++
		}
	}
	for i := range n {
		r.few[i].Mode = r.sent
	}
	if r.takes, r.asks = n, asks; asks == n || asks == 0 {
		return true
	}
	r.few = [len(r.few)]store.Take{} // which refer to the memory of the request
	return false
}

// makeTake sets what a limit is asked, but its Mode, since one limit may change that of all.
func (r *Result) makeTake(a *Ask, t *store.Take, limit int, endless bool) {
	l := &r.Set.Limits[limit]
	t.Key.Namespace = l.key.Namespace
	t.Key.Identity = a.Identities[l.Key] // a statement of its own, as otherwise it is copied twice
	t.Limit = l.stored(endless || l.unlimited)
	t.Cost = a.cost(r.Set, limit)
	if r.sent == store.ModeChargeDenied && t.Limit.NeverFits(t.Cost) {
		r.sent = store.ModeCharge // a request that never fits is not recorded
	}
	if !r.engine.store.isFar && !l.KeepsEntries() {
		t.ID = newID() // other takes in memory get one of their log
	}
}

// list is the takes of a request with more than two limits, or with one of requests in flight.
type list struct {
	takes   []store.Take   // those that are not asked, since they cost nothing, are last
	answers []store.Answer // of those that are asked
	limits  []int          // the limit of each take
	places  []int          // the take of each limit
	held    *permits.Held  // the permits that the request holds, or nil
}

func (r *Result) makeList(a *Ask, endless bool) {
	n := len(r.Set.Limits)
	r.takes, r.asks, r.list = n, 0, &list{
		make([]store.Take, n), make([]store.Answer, n), make([]int, n), make([]int, n), nil,
	}
	free := n
	for _, limit := range r.Set.order {
		at := r.asks
		if a.cost(r.Set, limit) > 0 {
			r.asks++
		} else {
			free--
			at = free
		}
		r.list.limits[at], r.list.places[limit] = limit, at
		r.makeTake(a, &r.list.takes[at], limit, endless)
	}
	for i := range r.list.takes[:r.asks] {
		r.list.takes[i].Mode = r.sent
	}
}

// all returns the takes, and asked those that are asked, which are the first ones, and their answers. The slices are
// r's own memory, so they must not be kept: r would be on the heap.
func (r *Result) all() []store.Take {
	if r.list != nil {
		return r.list.takes
	}
	return r.few[:r.takes]
}

func (r *Result) asked() ([]store.Take, []store.Answer) {
	if r.list != nil {
		return r.list.takes[:r.asks], r.list.answers[:r.asks]
	}
	return r.few[:r.asks], r.fewAnswers[:r.asks]
}

// sum makes the decision of the answers.
func (r *Result) sum(a *Ask) {
	r.Allowed = true
	_, answers := r.asked()
	longest := time.Duration(0)
	for i := range answers {
		r.Allowed = r.Allowed && answers[i].Allowed
		longest = max(longest, answers[i].Retry)
	}
	switch {
	case r.Allowed && a.Mode == store.ModeAtMost && r.Cause == ByLimits:
		r.Granted = answers[0].Granted // which is the same of all
	case r.Allowed:
		r.Granted = a.granted()
	default:
		if r.never = r.costsTooMuch(); !r.never && !r.AwaitsPermit() { // nobody knows when a request ends
			r.Retry = longest
		}
	}
}
