package engine

import (
	"math/bits"
	"slices"
	"strconv"
	"time"

	"github.com/sashlimit/sash/core/event"
	"github.com/sashlimit/sash/core/internal/guard"
	"github.com/sashlimit/sash/core/store"
)

// Cause is what has decided.
type Cause uint8

// These are the causes.
const (
	ByNothing  Cause = iota // there is no decision yet, or no limit was asked
	ByLimits                // the limits
	ByOpen                  // the failure policy, which counts nothing
	ByBan                   // a ban, which this request may have begun; nothing is told of the limits
	ByOverride              // an override that denies
)

// Result is a decision. It may be copied: what is given back or settled by one copy, others know. Numbers are asked for
// by limit, an index of Set.Limits.
type Result struct {
	Set      *Set       // with overrides
	Mode     store.Mode // that was asked for
	Cost     int        // of costs without a name, that was asked for
	Allowed  bool
	Cause    Cause
	Granted  int           // units of costs without a name that the request may use
	Retry    time.Duration // until the request fits if no other is admitted; 0 if that is not known, or never
	Source   event.Source
	Degraded bool      // the store has not decided, or has not told whether there is a ban
	Err      error     // why it has not
	Override *Override // of a key of the request, or nil

	Shadow    *Result // what is tried out, or nil
	ShadowErr error   // why there is none, or nil

	engine      *Engine
	base        *Trial        // what was asked before overrides, if they have changed it
	sent        store.Mode    // the mode of the takes
	never       bool          // it was denied, and a limit is asked for more than its quota
	takes, asks int           // takes that were made, and how many of them are asked
	at          time.Duration // since the process started, when the takes were made, if somebody needs it
	few         [2]store.Take // without a list: in the order of the limits
	fewAnswers  [2]store.Answer
	list        *list
	use         guard.Use // of a lease
	resets      uint64    // how many resets there had been when the takes were made
	overridden  *Rule     // whose key an override denies
}

// isLocal reports whether the failure policy has decided. Degraded may be of a ban alone.
func (r *Result) isLocal() bool { return r.Source == event.Local }

// place returns the take of a limit.
func (r *Result) place(limit int) int {
	if r.list == nil {
		return limit
	}
	return r.list.places[limit]
}

// of returns the take and the answer of a limit, or nil if it was not asked.
func (r *Result) of(limit int) (*store.Take, *store.Answer) {
	n := r.place(limit)
	switch {
	case n >= r.asks:
		return nil, nil
	case r.list != nil:
		return &r.list.takes[n], &r.list.answers[n]
	}
	return &r.few[n], &r.fewAnswers[n]
}

// Asks reports whether the request was asked about a limit.
func (r *Result) Asks(limit int) bool { return r.place(limit) < r.asks }

// Tells reports whether the numbers of a limit are known: it was asked, a denial from memory has not left it out, and
// no override lets it deny nothing.
func (r *Result) Tells(limit int) bool {
	_, a := r.of(limit)
	return a != nil && a.Known && !r.Set.Limits[limit].unlimited
}

// fits reports whether what a limit is asked for is within its quota.
func (r *Result) fits(limit int) bool {
	t, _ := r.of(limit)
	return t == nil || r.mayFit(t)
}

func (r *Result) mayFit(t *store.Take) bool {
	return r.sent == store.ModeAtMost || !t.Limit.NeverFits(t.Cost)
}

// Denies reports whether a limit has denied.
func (r *Result) Denies(limit int) bool {
	t, a := r.of(limit)
	return t != nil && r.denies(t, a)
}

func (r *Result) denies(t *store.Take, a *store.Answer) bool {
	return !r.Allowed && (a.Known && !a.Allowed || !r.mayFit(t))
}

// Denying returns the names of the limits that have denied, or of those whose quota is below the cost if there are any.
// It must not be written to: mostly it is a part of Set.Names, so that a denial allocates nothing.
func (r *Result) Denying() (names []string) {
	var denied uint64
	for i := range r.Set.Limits {
		if t, a := r.of(i); t != nil && r.denies(t, a) && r.never != r.mayFit(t) {
			denied |= 1 << i
		}
	}
	if denied == 0 {
		return nil
	}
	first, end := bits.TrailingZeros64(denied), bits.Len64(denied)
	if bits.OnesCount64(denied) == end-first {
		return r.Set.Names[first:end:end]
	}
	for i := first; i < end; i++ {
		if denied&(1<<i) != 0 {
			names = append(names, r.Set.Names[i])
		}
	}
	return names
}

// Never reports whether the request was denied because it costs more than a whole quota.
func (r *Result) Never() bool { return r.never }

// Records reports whether units were recorded, or would be if the request cost any.
func (r *Result) Records() bool {
	return r.Set != nil && r.Allowed && r.Mode != store.ModePeek && (r.Cause == ByLimits || r.Cause == ByNothing)
}

// costsTooMuch reports whether a limit is asked for more than its quota.
func (r *Result) costsTooMuch() bool {
	takes, _ := r.asked()
	for i := range takes {
		if !r.mayFit(&takes[i]) {
			return true
		}
	}
	return false
}

// AwaitsPermit reports whether a limit of requests in flight has denied.
func (r *Result) AwaitsPermit() bool {
	return r.Set.holds && r.find(func(i int) bool { return r.Set.Limits[i].InFlight && r.Denies(i) }) >= 0
}

// find returns the first limit for which is returns true, or -1.
func (r *Result) find(is func(limit int) bool) int {
	for i := range r.Set.Limits {
		if is(i) {
			return i
		}
	}
	return -1
}

// Used returns how many units of a limit there were in its window before this request.
func (r *Result) Used(limit int) int {
	_, a := r.of(limit)
	if a == nil {
		return 0
	}
	return a.Used
}

// Left returns what a limit has left after this request.
func (r *Result) Left(limit int) int {
	quota := r.Set.Limits[limit].Quota
	t, a := r.of(limit)
	if t == nil {
		return quota
	}
	return max(0, quota-a.Used-r.takenBy(t, a))
}

// taken returns how many units of a limit were recorded.
func (r *Result) taken(limit int) int {
	t, a := r.of(limit)
	if t == nil {
		return 0
	}
	return r.takenBy(t, a)
}

func (r *Result) takenBy(t *store.Take, a *store.Answer) int {
	units, mode := t.Limit.Counted(t.Cost, t.Mode)
	switch {
	case !a.Known || mode == store.ModePeek:
		return 0
	case r.Allowed && mode == store.ModeAtMost && !t.Limit.Permits:
		return a.Granted
	case r.Allowed, mode == store.ModeChargeDenied && !a.Allowed:
		return units
	}
	return 0
}

// Reset returns how long it takes until the oldest unit leaves the window of a limit: 0 if there is none, and for
// requests in flight.
func (r *Result) Reset(limit int) time.Duration {
	_, a := r.of(limit)
	if a == nil || r.Set.Limits[limit].InFlight {
		return 0
	}
	return a.Reset
}

// Wait returns how long it takes until a limit has room for the request, 0 if it has or never will.
func (r *Result) Wait(limit int) time.Duration {
	if !r.Asks(limit) {
		return 0
	}
	_, a := r.of(limit)
	return a.Retry
}

// decider returns the take and the answer of a limit if its numbers are known and, if the request was denied, it has
// denied; otherwise nil.
func (r *Result) decider(limit int) (*store.Take, *store.Answer) {
	t, a := r.of(limit)
	if t == nil || !a.Known || r.Set.Limits[limit].unlimited || !r.Allowed && !r.denies(t, a) {
		return nil, nil
	}
	return t, a
}

// Tightest returns the limit with the least left, or if they count several units with the smallest share left; of a
// denial only limits that denied are compared. It returns -1 if no limit was asked.
func (r *Result) Tightest() int {
	limit, _ := r.tightest()
	return limit
}

func (r *Result) tightest() (limit, left int) {
	limit = -1
	for i := range r.Set.Limits {
		t, a := r.decider(i)
		if t == nil {
			continue
		}
		l := &r.Set.Limits[i]
		its := max(0, l.Quota-a.Used-r.takenBy(t, a))
		tighter := limit < 0 || its < left
		if limit >= 0 && len(r.Set.Units) > 0 { // units cannot be compared
			tighter = int64(its)*int64(r.Set.Limits[limit].Quota) < int64(left)*int64(l.Quota)
		}
		if tighter {
			limit, left = i, its
		}
	}
	return limit, left
}

// Numbers returns Left and Reset of [Result.Tightest], and Used of the limit with the longest window. Of a denial,
// which may be from memory, and if there are no windows, that is of the tightest as well. They are 0 if no limit was
// asked.
func (r *Result) Numbers() (left int, reset time.Duration, used int) {
	if l := r.Set.Limits; len(l) == 1 && r.list == nil { // as of most requests
		t, a := r.decider(0)
		if t == nil {
			return 0, 0, 0
		}
		return max(0, l[0].Quota-a.Used-r.takenBy(t, a)), a.Reset, a.Used
	}
	tightest, left := r.tightest()
	if tightest < 0 {
		return 0, 0, 0
	}
	longest := r.Set.Longest
	if !r.Allowed || longest < 0 {
		longest = tightest
	}
	return left, r.Reset(tightest), r.Used(longest)
}

// Rule returns the rule of the first limit that has denied, or the first rule; nil without rules.
func (r *Result) Rule() *Rule {
	switch {
	case r.overridden != nil:
		return r.overridden
	case len(r.Set.Limits) == 0:
		return nil
	}
	return r.Set.Limits[max(0, r.find(r.Denies))].Rule()
}

// Identity returns whose quota the request uses: that of the first key of its own, or else of the first key; nil if
// there are no limits.
func (r *Result) Identity() *store.Identity {
	k := r.ownKey()
	if all := r.all(); k == nil && len(all) > 0 {
		k = &all[0].Key
	}
	if k == nil {
		return nil
	}
	return &k.Identity
}

// limitOf returns the limit of a take.
func (r *Result) limitOf(take int) *Limit {
	if r.list != nil {
		take = r.list.limits[take]
	}
	return &r.Set.Limits[take]
}

// AppendRateLimit appends the items of the field RateLimit.
func (r *Result) AppendRateLimit(b []byte) []byte {
	for i := range r.Set.Limits {
		if t, _ := r.decider(i); t == nil {
			continue
		}
		if len(b) > 0 {
			b = append(b, ", "...)
		}
		b = append(b, '"')
		b = append(b, r.Set.Limits[i].Name...)
		b = append(b, `";r=`...)
		b = strconv.AppendInt(b, int64(r.Left(i)), 10)
		if reset := r.Reset(i); reset > 0 && r.fits(i) {
			b = append(b, ";t="...)
			b = strconv.AppendInt(b, Seconds(reset), 10)
		}
	}
	return b
}

// Keep makes the result independent of the memory that its identities were read from.
func (r *Result) Keep() {
	if r.list != nil {
		own := *r.list // others may use the old one
		own.takes = append([]store.Take(nil), own.takes...)
		own.answers = append([]store.Answer(nil), own.answers...)
		r.list = &own
	}
	for i, all := 0, r.all(); i < len(all); i++ {
		all[i].Key = all[i].Key.Clone()
	}
	if r.base != nil {
		base := *r.base
		base.Ask.Identities = slices.Clone(base.Ask.Identities)
		for i := range base.Ask.Identities {
			base.Ask.Identities[i] = base.Ask.Identities[i].Clone()
		}
		r.base = &base
	}
	if r.Shadow != nil {
		shadow := *r.Shadow
		shadow.Keep()
		r.Shadow = &shadow
	}
}
