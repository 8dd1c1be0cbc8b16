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

// of returns the take and the answer of a limit that was asked.
func (r *Result) of(limit int) (*store.Take, *store.Answer) {
	takes, answers := r.asked()
	n := r.place(limit)
	return &takes[n], &answers[n]
}

// Asks reports whether the request was asked about a limit.
func (r *Result) Asks(limit int) bool {
	return r.place(limit) < r.asks
}

// Tells reports whether the numbers of a limit are known: it was asked, a denial from memory has not left it out, and
// no override lets it deny nothing.
func (r *Result) Tells(limit int) bool {
	if !r.Asks(limit) || r.Set.Limits[limit].unlimited {
		return false
	}
	_, a := r.of(limit)
	return a.Known
}

// fits reports whether what a limit is asked for is within its quota.
func (r *Result) fits(limit int) bool {
	if !r.Asks(limit) || r.sent == store.ModeAtMost {
		return true
	}
	t, _ := r.of(limit)
	return !t.Limit.NeverFits(t.Cost)
}

// Denies reports whether a limit has denied.
func (r *Result) Denies(limit int) bool {
	if r.Allowed || !r.Asks(limit) {
		return false
	}
	_, a := r.of(limit)
	return a.Known && !a.Allowed || !r.fits(limit)
}

// Denying returns the names of the limits that have denied, or of those whose quota is below the cost if there are any.
// It must not be written to: mostly it is a part of Set.Names, so that a denial allocates nothing.
func (r *Result) Denying() (names []string) {
	if r.takes == 1 { // as of most requests
		if r.Allowed || !r.Denies(0) {
			return nil
		}
		return r.Set.Names[:1:1]
	}
	never := r.Never()
	var denied uint64
	for i := range r.Set.Limits {
		if r.Denies(i) && never == !r.fits(i) {
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
func (r *Result) Never() bool {
	return !r.Allowed && r.find(func(i int) bool { return !r.fits(i) }) >= 0
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
	if !r.Asks(limit) {
		return 0
	}
	_, a := r.of(limit)
	return a.Used
}

// Left returns what a limit has left after this request.
func (r *Result) Left(limit int) int {
	return max(0, r.Set.Limits[limit].Quota-r.Used(limit)-r.taken(limit))
}

// taken returns how many units of a limit were recorded.
func (r *Result) taken(limit int) int {
	if !r.Asks(limit) {
		return 0
	}
	t, a := r.of(limit)
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
	if !r.Asks(limit) || r.Set.Limits[limit].InFlight {
		return 0
	}
	_, a := r.of(limit)
	return a.Reset
}

// decides reports whether the numbers of a limit are known and, if the request was denied, it has denied.
func (r *Result) decides(limit int) bool { return r.Tells(limit) && (r.Allowed || r.Denies(limit)) }

// Tightest returns the limit with the least left, or if they count several units with the smallest share left; of a
// denial only limits that denied are compared. It returns -1 if no limit was asked.
func (r *Result) Tightest() int {
	least, leastLeft := -1, 0
	for i := range r.Set.Limits {
		if !r.decides(i) {
			continue
		}
		left := r.Left(i)
		tighter := least < 0 || left < leastLeft
		if least >= 0 && len(r.Set.Units) > 0 { // units cannot be compared
			tighter = int64(left)*int64(r.Set.Limits[least].Quota) < int64(leastLeft)*int64(r.Set.Limits[i].Quota)
		}
		if tighter {
			least, leastLeft = i, left
		}
	}
	return least
}

// Numbers returns Left and Reset of [Result.Tightest], and [Result.UsedOfLongest]: 0 if no limit was asked.
func (r *Result) Numbers() (left int, reset time.Duration, used int) {
	if r.takes == 1 && r.list == nil { // as of most requests
		l, a := &r.Set.Limits[0], &r.fewAnswers[0]
		if r.asks == 0 || !a.Known || l.unlimited {
			return 0, 0, 0
		}
		return max(0, l.Quota-a.Used-r.taken(0)), a.Reset, a.Used
	}
	least := r.Tightest()
	if least < 0 {
		return 0, 0, 0
	}
	return r.Left(least), r.Reset(least), r.UsedOfLongest()
}

// UsedOfLongest returns Used of the limit with the longest window. Of a denial, which may be from memory, and if there
// are no windows, it is that of [Result.Tightest].
func (r *Result) UsedOfLongest() int {
	limit := r.Set.Longest
	if !r.Allowed || limit < 0 {
		limit = r.Tightest()
	}
	if limit < 0 {
		return 0
	}
	return r.Used(limit)
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
		if !r.decides(i) {
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
