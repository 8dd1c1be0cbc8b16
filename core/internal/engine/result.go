package engine

import (
	"slices"
	"strconv"
	"time"

	"github.com/sashlimit/sash/core/event"
	"github.com/sashlimit/sash/core/internal/guard"
	"github.com/sashlimit/sash/core/internal/permits"
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
	Set      *Set // with overrides
	Cost     int  // of costs without a name, that was asked for
	Granted  int  // units of costs without a name that the request may use
	Allowed  bool
	Degraded bool       // the store has not decided, or has not told whether there is a ban
	Mode     store.Mode // that was asked for; that of the takes may be another one
	Cause    Cause
	Source   event.Source
	Never    bool          // it was denied, and a limit is asked for more than its quota
	Retry    time.Duration // until the request fits if no other is admitted; 0 if that is not known, or never
	Err      error         // why it is Degraded
	Override *Override     // of a key of the request, or nil

	Shadow    *Result // what is tried out, or nil
	ShadowErr error   // why there is none, or nil

	engine     *Engine
	asks       int           // how many limits are asked: 0 if a ban or an override denies
	at         time.Duration // since the process started, when the takes were made, if somebody needs it
	few        [2]store.Take // unless there are more limits
	fewAnswers [2]store.Answer
	more       *many
	held       *permits.Held // the permits that the request holds, or nil
	use        guard.Use     // of a lease
	resets     uint64        // how many resets there had been when the takes were made
	overridden *Rule         // whose key an override denies
}

// isLocal reports whether the failure policy has decided. Degraded may be of a ban alone.
func (r *Result) isLocal() bool { return r.Source == event.Local }

// of returns the take and the answer of a limit, or nil if it was not asked.
func (r *Result) of(limit int) (t *store.Take, a *store.Answer) {
	takes, answers := r.all()
	if r.asks == 0 || takes[limit].Cost == 0 {
		return nil, nil
	}
	return &takes[limit], &answers[limit]
}

// State is what a decision knows of a limit.
type State struct {
	Asked  bool          // the request was asked about it
	Told   bool          // its numbers are known; not if another has denied from memory, or an override lets all pass
	Denies bool          // it has denied
	Never  bool          // it is asked for more than its quota
	Used   int           // units in its window before this request
	Left   int           // units that are left after this request
	Reset  time.Duration // until the oldest unit leaves its window: 0 if there is none, and for requests in flight
	Wait   time.Duration // until it has room for the request, 0 if it has or never will
}

// State returns what is known of a limit.
func (r *Result) State(limit int) (s State) {
	l := &r.Set.Limits[limit]
	t, a := r.of(limit)
	if t == nil {
		s.Left = l.Quota
		return s
	}
	s.Asked, s.Told, s.Never, s.Denies = true, a.Known && !l.unlimited, !r.mayFit(t), r.denies(t, a)
	s.Used, s.Left, s.Wait = a.Used, r.left(l, t, a), a.Retry
	if !l.InFlight {
		s.Reset = a.Reset
	}
	return s
}

func (r *Result) denies(t *store.Take, a *store.Answer) bool {
	return !r.Allowed && (a.Known && !a.Allowed || !r.mayFit(t))
}

// decides reports whether the numbers of a limit are told and, if the request was denied, it has denied.
func (r *Result) decides(l *Limit, t *store.Take, a *store.Answer) bool {
	return a.Known && !l.unlimited && (r.Allowed || r.denies(t, a))
}

func (r *Result) left(l *Limit, t *store.Take, a *store.Answer) int {
	return max(0, l.Quota-a.Used-r.taken(t, a))
}

// mayFit reports whether what a limit is asked for is within its quota.
func (r *Result) mayFit(t *store.Take) bool {
	return r.Mode == store.ModeAtMost || !t.Limit.NeverFits(t.Cost)
}

// taken returns how many units of a limit were recorded.
func (r *Result) taken(t *store.Take, a *store.Answer) int {
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

// Denying returns the names of the limits that have denied, or of those whose quota is below the cost if there are any.
// It must not be written to: mostly it is a part of Set.Names, so that a denial allocates nothing.
func (r *Result) Denying() (names []string) {
	switch {
	case r.Allowed:
		return nil
	case len(r.Set.Names) == 1: // as mostly
		return r.Set.Names[:1:1]
	}
	first := 0 // of names that follow each other
	for i := range r.Set.Limits {
		switch t, a := r.of(i); {
		case t == nil || !r.denies(t, a) || r.Never && r.mayFit(t):
		case names == nil:
			first, names = i, r.Set.Names[i:i+1:i+1]
		case i == first+len(names):
			names = r.Set.Names[first : i+1 : i+1]
		default:
			first, names = len(r.Set.Names), append(names, r.Set.Names[i])
		}
	}
	return names
}

// Records reports whether units were recorded, or would be if the request cost any.
func (r *Result) Records() bool {
	return r.Set != nil && r.Allowed && r.Mode != store.ModePeek && (r.Cause == ByLimits || r.Cause == ByNothing)
}

// AwaitsPermit reports whether a limit of requests in flight has denied.
func (r *Result) AwaitsPermit() bool {
	return r.Set.InFlight && r.find(func(i int) bool { return r.Set.Limits[i].InFlight && r.State(i).Denies }) >= 0
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

// Tightest returns the limit with the least left, or if they count several units with the smallest share left; of a
// denial only limits that denied are compared. It returns -1 if no limit was asked.
func (r *Result) Tightest() int {
	limit, least := -1, 0
	for i := range r.Set.Limits {
		l := &r.Set.Limits[i]
		t, a := r.of(i)
		if t == nil || !r.decides(l, t, a) {
			continue
		}
		left := r.left(l, t, a)
		tighter := limit < 0 || left < least
		if limit >= 0 && r.Set.mixed { // units cannot be compared
			tighter = int64(left)*int64(r.Set.Limits[limit].Quota) < int64(least)*int64(l.Quota)
		}
		if tighter {
			limit, least = i, left
		}
	}
	return limit
}

// Numbers returns Left and Reset of [Result.Tightest], and Used of the limit with the longest window. Of a denial,
// which may be from memory, and if there are no windows, that is of the tightest as well. They are 0 if no limit was
// asked.
func (r *Result) Numbers() (left int, reset time.Duration, used int) {
	if l := r.Set.Limits; len(l) == 1 && r.asks == 1 && !l[0].InFlight { // as of most requests
		t, a := &r.few[0], &r.fewAnswers[0]
		if !r.decides(&l[0], t, a) {
			return 0, 0, 0
		}
		return r.left(&l[0], t, a), a.Reset, a.Used
	}
	tightest := r.Tightest()
	if tightest < 0 {
		return 0, 0, 0
	}
	l := &r.Set.Limits[tightest]
	t, a := r.of(tightest)
	left = r.left(l, t, a)
	if !l.InFlight {
		reset = a.Reset
	}
	if longest := r.Set.Longest; r.Allowed && longest >= 0 {
		_, a = r.of(longest)
	}
	if a != nil {
		used = a.Used
	}
	return left, reset, used
}

// Rule returns the rule of the first limit that has denied, or the first rule; nil without rules.
func (r *Result) Rule() *Rule {
	switch {
	case r.overridden != nil:
		return r.overridden
	case len(r.Set.Limits) == 0:
		return nil
	}
	return r.Set.Limits[max(0, r.find(func(i int) bool { return r.State(i).Denies }))].Rule()
}

// Identity returns whose quota the request uses: that of the first key of its own, or else of the first key; nil if
// there are no limits.
func (r *Result) Identity() *store.Identity {
	if k := r.ownKey(); k != nil {
		return &k.Identity
	}
	if all, _ := r.all(); len(all) > 0 {
		return &all[0].Identity
	}
	return nil
}

// AppendRateLimit appends the items of the field RateLimit.
func (r *Result) AppendRateLimit(b []byte) []byte {
	for i := range r.Set.Limits {
		s := r.State(i)
		if !s.Told || !r.Allowed && !s.Denies {
			continue
		}
		if len(b) > 0 {
			b = append(b, ", "...)
		}
		b = append(b, '"')
		b = append(b, r.Set.Limits[i].Name...)
		b = append(b, `";r=`...)
		b = strconv.AppendInt(b, int64(s.Left), 10)
		if s.Reset > 0 && !s.Never {
			b = append(b, ";t="...)
			b = strconv.AppendInt(b, Seconds(s.Reset), 10)
		}
	}
	return b
}

// Keep makes the result independent of the memory that its identities were read from.
func (r *Result) Keep() {
	if r.Set == nil {
		return
	}
	if r.more != nil { // others may use the old ones
		r.more = &many{slices.Clone(r.more.takes), slices.Clone(r.more.answers)}
	}
	all, _ := r.all()
	for i := range all {
		all[i].Key = all[i].Key.Clone()
	}
	if r.Shadow != nil {
		shadow := *r.Shadow
		shadow.Keep()
		r.Shadow = &shadow
	}
}
