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
	unit      int  // index in Set.Units, unless it is InFlight
	unnamed   bool // it is asked what requests cost without a name
	unlimited bool // an override lets it deny nothing
	key       *Key
	log       *limitLog
}

// limitLog is what a store gets of a limit.
type limitLog struct {
	like     store.Limit // without its periods
	fixed    *asStored   // unless there is a calendar
	calendar calendar.Calendar
	present  atomic.Pointer[asStored]
}

// asStored is a limit as a store gets it for some time: as it is, and with room for all.
type asStored struct{ limit, endless store.Limit }

// Store returns the limit as a store gets it now. It is another one when a period of the calendar has ended.
func (l *Limit) Store() *store.Limit { return l.log.stored(l.unlimited) }

func (l *limitLog) stored(endless bool) *store.Limit {
	as := l.fixed
	if as == nil {
		as = l.now()
	}
	if endless {
		return &as.endless
	}
	return &as.limit
}

// KeepsEntries reports whether the limit has a log of entries, and not a few numbers.
func (l *Limit) KeepsEntries() bool { return l.log.like.Algorithm == store.SlidingLog }

// Algorithm returns how the limit counts, in words.
func (l *Limit) Algorithm() string {
	if l.InFlight {
		return "in flight"
	}
	return l.log.like.Algorithm.String()
}

// Rule returns the rule that the limit is of.
func (l *Limit) Rule() *Rule { return l.key.rule }

// Log returns the name of the limit's log among those of its key.
func (l *Limit) Log() string { return l.log.like.Log }

// SameKey reports whether two limits have one key.
func (l *Limit) SameKey(other *Limit) bool { return l.key.is(other.key) }

// SameLog reports whether two limits are quotas on one log of each identity.
func (l *Limit) SameLog(other *Limit) bool { return l.SameKey(other) && l.Log() == other.Log() }

func (l *limitLog) make(periods *store.Calendar) *asStored {
	as := &asStored{l.like, l.like}
	as.limit.Calendar, as.endless.Calendar, as.endless.Unlimited = periods, periods, true
	return as
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

// ownKey returns the key of a rule, which its limits have unless they have another one.
func (e *Engine) ownKey(r *Rule) *Key {
	n := e.namespace(r, "own")
	return &Key{Spec: r.Key, Own: true, Namespace: n, rule: r, overrides: n}
}

// compile makes limits ready, whose key is own unless they have another. It returns them even with an error, so that
// further mistakes can be found; option names them in errors.
func (e *Engine) compile(given []Given, own *Key, option string) ([]Limit, error) {
	var faults []error
	limits := make([]Limit, len(given))
	for i := range given {
		g := &given[i]
		if own.rule.Shadow && g.InFlight {
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
		limits[i] = e.compileOne(g, own, len(wrong) == 0)
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

func (e *Engine) compileOne(g *Given, own *Key, valid bool) Limit {
	name := g.DefaultName()
	l := Limit{
		Name: own.rule.Prefix + name, Text: g.String(), Unit: g.Unit,
		InFlight: g.InFlight, Quota: g.Quota, Window: g.Window, key: own,
	}
	if g.Name != "" && g.Name != name {
		l.Name, l.named = g.Name, true
	}
	if g.Key != nil && g.Key != own.Spec {
		l.key = e.keyOf(g, own.rule)
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
	if l.log = (&limitLog{like: like, calendar: g.Calendar}); !g.Calendar.IsSet() {
		l.log.fixed = l.log.make(nil)
	}
	return l
}

// keyOf returns the key of a limit with By.
func (e *Engine) keyOf(g *Given, r *Rule) *Key {
	named := func(label string) *store.Namespace {
		return e.namespace(r, strings.TrimSuffix("by."+Fit(label), "."))
	}
	scope := named(g.Key.Scope)
	k := &Key{Spec: g.Key, Namespace: scope, rule: r, overrides: scope}
	if g.Label != "" {
		k.Namespace = named(g.Label)
	}
	return k
}

func configError(option, value, problem, remedy string) error {
	return &store.ConfigError{Option: option, Value: value, Problem: problem, Remedy: remedy}
}
