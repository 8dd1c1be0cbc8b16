package engine

import (
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/sashlimit/sash/core/internal/calendar"
	"github.com/sashlimit/sash/core/internal/keys"
	"github.com/sashlimit/sash/core/internal/limittext"
	"github.com/sashlimit/sash/core/store"
)

// Given is a limit as a user has written it.
type Given struct {
	limittext.Limit

	Key   *keys.Spec // nil: the policy's own
	Label string     // that Limit.Named gave, which names the logs of a limit with a key; empty: the key's scope
}

// equal reports whether two limits are written equally, also where their time zones were loaded twice.
func (g *Given) equal(other *Given) bool {
	if *g == *other {
		return true
	}
	same := *g
	same.Calendar = other.Calendar
	return same == *other && g.Calendar.Equal(other.Calendar)
}

// clone returns a copy that refers to no memory of the caller, which a server may use again.
func (g *Given) clone() Given {
	own := *g
	own.Name, own.Unit, own.Label = strings.Clone(g.Name), strings.Clone(g.Unit), strings.Clone(g.Label)
	return own
}

// Limit is a limit that is ready to be decided. It is a quota on one log of each identity of its key.
type Limit struct {
	Name     string // in header fields
	Text     string // as users write it, for errors
	Unit     string // what it counts, or empty: requests
	InFlight bool   // it counts requests at the same time, each with a permit
	Quota    int    // units; of a token bucket those that a full one has
	Window   time.Duration
	Key      int // index in Set.Keys

	named     bool // Name was given, and is not what it would be without
	unnamed   bool // it is asked what requests cost without a name
	unlimited bool // an override lets it deny nothing
	key       *Key
	log       *limitLog
}

// limitLog is what a store gets of a limit.
type limitLog struct {
	fixed    *asStored // unless there is a calendar
	calendar calendar.Calendar
	like     store.Limit // without its periods
	present  atomic.Pointer[asStored]
}

// asStored is a limit as a store gets it for some time.
type asStored struct {
	limit   *store.Limit
	endless *store.Limit // the same, with room for all
}

// Store returns the limit as a store gets it now. It is another one when a period of the calendar has ended.
func (l *Limit) Store() *store.Limit { return l.stored(l.unlimited) }

func (l *Limit) stored(endless bool) *store.Limit {
	as := l.log.fixed
	if as == nil {
		as = l.log.now()
	}
	if endless {
		return as.endless
	}
	return as.limit
}

// IsUnlimited reports whether an override lets the limit deny nothing.
func (l *Limit) IsUnlimited() bool { return l.unlimited }

// KeepsEntries reports whether the limit has a log of entries, and not a few numbers.
func (l *Limit) KeepsEntries() bool { return l.log.like.Algorithm == store.SlidingLog }

// Algorithm returns how the limit counts, in words.
func (l *Limit) Algorithm() string {
	if l.InFlight {
		return "in flight"
	}
	return l.log.like.Algorithm.String()
}

// Rule returns the rule that has chosen the limit, or nil.
func (l *Limit) Rule() *Rule { return l.key.owner.rule }

// Log returns the name of the limit's log among those of its key.
func (l *Limit) Log() string { return l.log.like.Log }

// SameKey reports whether two limits have one key.
func (l *Limit) SameKey(other *Limit) bool { return l.key.is(other.key) }

// SameLog reports whether two limits are quotas on one log of each identity.
func (l *Limit) SameLog(other *Limit) bool { return l.SameKey(other) && l.Log() == other.Log() }

func newLimitLog(like store.Limit, c calendar.Calendar) *limitLog {
	log := &limitLog{like: like, calendar: c}
	if !c.IsSet() {
		log.fixed = log.make(nil)
	}
	return log
}

func (l *limitLog) make(periods *store.Calendar) *asStored {
	limit, endless := l.like, l.like
	limit.Calendar, endless.Calendar, endless.Unlimited = periods, periods, true
	return &asStored{&limit, &endless}
}

// now returns the limit with the calendar's present period.
func (l *limitLog) now() *asStored {
	as, now := l.present.Load(), time.Now()
	if as != nil && as.limit.Calendar[1] <= now.UnixMicro() && now.UnixMicro() < as.limit.Calendar[2] {
		return as
	}
	begin, end := l.calendar.Period(now)
	before, _ := l.calendar.Period(begin.Add(-time.Second))
	_, after := l.calendar.Period(end)
	as = l.make(&store.Calendar{before.UnixMicro(), begin.UnixMicro(), end.UnixMicro(), after.UnixMicro()})
	l.present.Store(as)
	return as
}

// owner is whose limits are compiled: those in force, those that are tried out, or those of a rule.
type owner struct {
	policy string // begins the names of logs
	shadow bool
	key    *Key
	rule   *Rule // or nil
	label  string
	prefix string // of default names
}

func (e *Engine) newOwner(policy string, shadow bool, own *keys.Spec, r *Rule) *owner {
	o := &owner{policy: policy, shadow: shadow, rule: r}
	if shadow {
		o.policy += shadowMark
	}
	if r != nil {
		o.label, o.prefix = r.Label, r.Prefix
	}
	n := e.namespace(o.policy, partOf(true, "", o.label))
	o.key = &Key{Spec: own, Own: true, Namespace: n, owner: o, overrides: n}
	return o
}

// compile makes limits ready. It returns them even with an error, so that further mistakes can be found; option names
// them in errors.
func (e *Engine) compile(given []Given, o *owner, option string) ([]Limit, error) {
	var faults []error
	limits := make([]Limit, len(given))
	for i := range given {
		g := &given[i]
		if o.shadow && g.InFlight {
			faults = append(faults, configError(option, g.String(), "requests in flight cannot be tried out",
				"leave this limit out"))
		}
		if g.Key != nil && g.Key.Fault != nil {
			faults = append(faults, g.Key.Fault)
		}
		wrong := g.Faults()
		for _, f := range wrong {
			faults = append(faults, configError(option, g.String(), f.Problem, f.Remedy))
		}
		limits[i] = e.compileOne(g, o, len(wrong) == 0)
	}
	nameOverrides(limits)
	return limits, errors.Join(append(faults, check(limits, option))...)
}

// nameOverrides gives the keys of limits names of their overrides of their own where two would have the same: those of
// their logs. Otherwise a key has one name, whatever names its limits have.
func nameOverrides(limits []Limit) {
	for i := range limits {
		k := limits[i].key
		if slices.ContainsFunc(limits, func(l Limit) bool {
			return !k.Own && !l.key.Own && l.key.Spec != k.Spec && l.key.Spec.Scope == k.Spec.Scope &&
				l.key.Spec.Shares(k.Spec)
		}) {
			first := slices.IndexFunc(limits, func(l Limit) bool { return l.key.Spec == k.Spec })
			k.overrides = limits[first].key.Namespace
		}
	}
}

func (e *Engine) compileOne(g *Given, o *owner, valid bool) Limit {
	name := g.DefaultName()
	l := Limit{
		Name: o.prefix + name, Text: g.String(), Unit: g.Unit, InFlight: g.InFlight, Quota: g.Quota, Window: g.Window,
		key: o.key,
	}
	if g.Name != "" && g.Name != name {
		l.Name, l.named = g.Name, true
	}
	if g.Key != nil && g.Key != o.key.Spec {
		l.key = e.keyOf(g, o)
	}
	like := store.Limit{Window: g.Window, Algorithm: g.Algorithm, Permits: g.InFlight}
	switch {
	case g.InFlight:
		l.Window, like.Window = g.Lease, g.Lease
	case !valid:
	case g.Calendar.IsSet():
		l.Window, like.Algorithm = g.Calendar.Longest(), store.FixedWindow
		like.Window = l.Window
	case g.Algorithm == store.TokenBucket:
		l.Quota, like.Refill = g.Burst, g.Quota
	case g.Algorithm == store.SlidingLog:
		like.Window += e.config.Guard.Lease
		like.Leased = e.config.Guard.Lease > 0
	}
	if like.Quota = l.Quota; valid {
		like.Log = logName(&like, &g.Limit)
	}
	l.log = newLimitLog(like, g.Calendar)
	return l
}

// keyOf returns the key of a limit with By.
func (e *Engine) keyOf(g *Given, o *owner) *Key {
	scope := e.namespace(o.policy, partOf(false, g.Key.Scope, o.label))
	k := &Key{Spec: g.Key, Namespace: scope, owner: o, overrides: scope}
	if g.Label != "" {
		k.Namespace = e.namespace(o.policy, partOf(false, g.Label, o.label))
	}
	return k
}

func names(limits []Limit) []string {
	all := make([]string, len(limits))
	for i := range limits {
		all[i] = limits[i].Name
	}
	return all
}

func configError(option, value, problem, remedy string) error {
	return &store.ConfigError{Option: option, Value: value, Problem: problem, Remedy: remedy}
}
