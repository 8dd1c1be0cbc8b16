// Package plan has what a policy asks of a store: a list of logs, at least one, each with the limits that draw from it.
package plan

import (
	"errors"
	"fmt"
	"math"
	"math/bits"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sashlimit/sash/core/internal/calendar"
	"github.com/sashlimit/sash/core/store"
)

// Key is whose quota a limit is. Limits have the same key if their Keys are equal.
type Key interface {
	LogName() string // the kind of the key in the names of logs, of [a-z0-9._-]
}

// Limit is a limit that is valid and has a name.
type Limit struct {
	Name      string
	Named     bool   // Name was given, and is not what it would be without
	Text      string // as users write it, for errors
	Period    string // the window in the names of logs, such as "minute"
	Key       Key    // nil is the policy's own
	Unit      string // what it counts, or empty: requests
	InFlight  bool
	Algorithm store.Algorithm
	Quota     int           // units that are available at once at most
	Refill    int           // units that a token bucket gains in a Window
	Window    time.Duration // of InFlight, the lease
	Calendar  calendar.Calendar
}

// IsOwn reports whether the limit has a window and the policy's own key.
func (l *Limit) IsOwn(own Key) bool { return !l.InFlight && (l.Key == nil || l.Key == own) }

// KeepsEntries reports whether the limit has a log of entries, and not a few numbers.
func (l *Limit) KeepsEntries() bool { return l.Algorithm == store.SlidingLog }

// ForStore returns the limit as a store gets it now.
func (l *Limit) ForStore() store.Limit {
	s := store.Limit{Quota: l.Quota, Window: l.Window, Algorithm: l.Algorithm, Refill: l.Refill}
	if l.Calendar.IsSet() {
		s.Calendar = periodsAround(l.Calendar, time.Now())
	}
	return s
}

// Plan is the limits of one decision, and the logs that they draw from.
type Plan struct {
	Limits  []Limit         // those that decide
	Names   []string        // of Limits
	Header  string          // the field RateLimit-Policy
	Longest int             // index of the limit with the longest window, of those with Unit if there are any
	Unit    string          // what costs without a name are of: requests, or the only unit that Limits have
	Units   []string        // all other units
	Counter store.Algorithm // of the first limit that keeps no entries, or SlidingLog
	Rule    *Rule           // of the first limit, or nil unless rules have chosen the limits
	Shadow  *Plan           // limits that are evaluated and do not decide, or nil
	Logs    []*Log          // at least one; see [Spaces.Split]

	mixed    bool // Limits count other units than Unit, and not only Shadow's do
	Smallest int  // how many units without a name fit at once at most; math.MaxInt if no limit has a window
}

// New makes a plan of limits. option names them in errors. It returns a plan even with an error, so that further
// mistakes can be found.
func New(limits []Limit, option string) (*Plan, error) {
	var faults []error
	fault := func(value, problem, remedy string) {
		faults = append(faults, configError(option, value, problem, remedy))
	}
	switch {
	case len(limits) == 0:
		fault("none", "there are no limits", "pass at least one, such as core.PerMinute(100)")
	case len(limits) > store.MaxLimits:
		fault(strconv.Itoa(len(limits)), "there are too many limits", fmt.Sprintf("use at most %d", store.MaxLimits))
	}
	for i, l := range limits {
		if l.Name != "" && isNamed(limits[:i], l.Name) {
			fault(l.Text, fmt.Sprintf("two limits have the name %q", l.Name), "remove one of them, or set Name")
		}
	}
	p := &Plan{Limits: limits}
	p.sum()
	return p, errors.Join(faults...)
}

// isNamed reports whether one of the limits has a name.
func isNamed(limits []Limit, name string) bool {
	return slices.ContainsFunc(limits, func(l Limit) bool { return l.Name == name })
}

// sum sets what follows from the limits.
func (p *Plan) sum() {
	p.sumOf(unnamedUnit(p.Limits))
	p.findUnits()
}

// sumOf is sum but for the other units, if costs without a name are of that unit.
func (p *Plan) sumOf(unit string) {
	p.Smallest, p.Unit, p.Names = math.MaxInt, unit, make([]string, len(p.Limits))
	var keep time.Duration
	var header strings.Builder
	for i := range p.Limits {
		l := &p.Limits[i]
		if p.Names[i] = l.Name; i > 0 {
			header.WriteString(", ")
		}
		l.appendPolicy(&header)
		if l.InFlight {
			continue
		}
		if p.Counter == store.SlidingLog {
			p.Counter = l.Algorithm
		}
		if l.Unit != p.Unit {
			continue
		}
		if p.Smallest = min(p.Smallest, l.Quota); l.Window > keep {
			keep, p.Longest = l.Window, i
		}
	}
	p.Header = header.String()
}

// appendPolicy appends the limit as an item of RateLimit-Policy.
func (l *Limit) appendPolicy(header *strings.Builder) {
	if l.InFlight {
		fmt.Fprintf(header, `"%s";q=%d;qu="concurrent-requests"`, l.Name, l.Quota)
		return
	}
	unit := ""
	if l.Unit != "" {
		unit = `;qu="` + l.Unit + `"`
	}
	window := l.Window
	if l.Refill > 0 { // the rate is that of the whole bucket
		window = time.Duration(l.ForStore().Interval() * int64(l.Quota))
	}
	// The window is rounded up, so that a client which waits that long is not too early.
	fmt.Fprintf(header, `"%s";q=%d%s;w=%d`, l.Name, l.Quota, unit, int64((window+time.Second-1)/time.Second))
}

// OwnSpace returns the space of the log if there is only one, which is of windows and of the policy's own key.
func (p *Plan) OwnSpace() *Space {
	if len(p.Logs) == 1 && p.Logs[0].Own && !p.Logs[0].InFlight() {
		return p.Logs[0].Space
	}
	return nil
}

// Grant returns how many units, cost at most, all limits have left.
func (p *Plan) Grant(a *store.Answer, cost int) int {
	for i := range p.Limits {
		if l := &p.Limits[i]; !l.InFlight && l.Unit == p.Unit {
			cost = min(cost, l.Quota-a.State[i].Used)
		}
	}
	return max(cost, 0)
}

// Denying returns the names of the limits that have denied. They are a part of Names if the limits are adjacent, which
// they nearly always are, so that a denial allocates nothing.
func (p *Plan) Denying(a *store.Answer) (names []string) {
	denied := uint(a.Denied) & (1<<len(p.Limits) - 1)
	if denied == 0 {
		return nil
	}
	first, end := bits.TrailingZeros(denied), bits.Len(denied)
	if bits.OnesCount(denied) == end-first {
		return p.Names[first:end:end]
	}
	for i := first; i < end; i++ {
		if a.Denied.Has(i) {
			names = append(names, p.Names[i])
		}
	}
	return names
}

// Spread returns when the last of units that wait in a queue can be admitted at the earliest: later than the last of
// the first of them, and which limit causes it. A unit is admitted when the unit one quota before it leaves the window,
// and so one window after that was admitted.
func (p *Plan) Spread(units int) (first int, later time.Duration, by int) {
	first = units
	for i, limit := range p.Limits {
		if limit.InFlight || !limit.KeepsEntries() || limit.Unit != p.Unit {
			continue
		}
		full := (units - 1) / limit.Quota
		if wait := time.Duration(full) * limit.Window; wait > later {
			first, later, by = units-full*limit.Quota, wait, i
		}
	}
	return min(first, p.Smallest), later, by
}

// AddShadow adds limits that do not decide. If it fails, p is as it was.
func (p *Plan) AddShadow(shadow *Plan) error {
	if shadow.Counter != store.SlidingLog {
		return ShadowError(shadow.Counter)
	}
	if len(p.Limits)+len(shadow.Limits) > store.MaxLimits {
		return configError("WithShadow", strconv.Itoa(len(shadow.Limits))+" limits",
			fmt.Sprintf("with the %d limits of the policy in force, these are more than %d", len(p.Limits),
				store.MaxLimits), "try fewer limits at once")
	}
	p.Shadow, shadow.Unit = shadow, p.Unit
	p.findUnits()
	return nil
}

// ShadowError returns the error for limits of an algorithm that are to be tried out.
func ShadowError(a store.Algorithm) error {
	return configError("WithShadow", a.String(), "a shadow evaluates sliding logs only", "use limits without With")
}

func configError(option, value, problem, remedy string) error {
	return &store.ConfigError{Option: option, Value: value, Problem: problem, Remedy: remedy}
}

// All returns the limits that decide, and then those of the shadow.
func (p *Plan) All() []Limit {
	if p.Shadow == nil {
		return p.Limits
	}
	return slices.Concat(p.Limits, p.Shadow.Limits)
}

// StorePlans returns what the store is asked about each of the logs, also before a space is chosen for them.
func (p *Plan) StorePlans() []*store.Plan {
	plans := make([]*store.Plan, len(p.Logs))
	for i, log := range p.Logs {
		keep := log.Keep
		if log.Space != nil { // of an override, whose log keeps entries for the limits that it replaces
			keep = max(keep, log.Space.Keep())
		}
		plans[i] = newStorePlan(log.Limits, store.Plan{Shadow: log.Shadow, Keep: keep, Varies: log.varies})
	}
	return plans
}

// Merge makes one answer of those of the logs that were asked: the request is admitted if all have room, and waits for
// the last of them.
func Merge(logs []*Log, takes []store.Take, answers []store.Answer) (a store.Answer) {
	a.Allowed, a.Granted = true, answers[0].Granted // which is the same of all logs
	never, neverShadow := false, false
	for n := range takes {
		log, t, from := logs[n], &takes[n], &answers[n]
		a.Allowed = a.Allowed && from.Allowed
		if !log.InFlight() && len(log.At) > 0 { // nobody knows when a request ends
			a.Retry, a.Shadow = max(a.Retry, from.Retry), max(a.Shadow, from.Shadow)
			never, neverShadow = never || NeverFits(t.Plan.Deciding(), t), neverShadow || NeverFits(t.Plan.Shadows(), t)
		}
		for i, at := range log.At {
			a.State[at] = from.State[i]
			if from.Denied.Has(i) {
				a.Denied |= 1 << at
			}
		}
	}
	a.Allowed = a.Allowed || takes[0].Mode == store.ModeRecord
	if never || a.Allowed {
		a.Retry = 0
	}
	if neverShadow {
		a.Shadow = 0
	}
	return a
}

// NeverFits reports whether a take costs more than the quota of a limit, so that no wait helps.
func NeverFits(limits []store.Limit, t *store.Take) bool {
	return t.Mode != store.ModeUpTo && slices.ContainsFunc(limits, func(l store.Limit) bool { return t.Cost > l.Quota })
}
