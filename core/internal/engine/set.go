package engine

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sashlimit/sash/core/internal/keys"
	"github.com/sashlimit/sash/core/internal/limittext"
	"github.com/sashlimit/sash/core/store"
)

// Set is limits that are decided together: those of a policy, of a request's rules, or either with overrides. It is not
// changed after it was made.
type Set struct {
	Limits []Limit  // in the order in which they were written
	Names  []string // of Limits
	Keys   []*Key   // of Limits, in the order in which these have them
	Header string   // the field RateLimit-Policy; it leaves out limits that an override lets deny nothing

	Unit    string // what costs without a name are of: requests if any limit counts these, else the only unit
	Units   []Unit // in the order in which the limits have them
	Longest int    // index of the limit of Unit with the longest window, or -1

	InFlight bool // some limits are of requests in flight

	plain    *Set  // what it was before overrides, with the same keys and units, or nil
	order    []int // the limits in the order in which they are asked, so that takes of one key follow each other
	inOrder  bool  // that is the order of Limits
	leasable bool  // units may be taken ahead
	counters bool  // some limits keep a few numbers, and not entries
	mixed    bool  // some limits count another unit than Unit
}

// Unit is what limits with windows count. A request has one cost in it, by each rule that applies.
type Unit struct {
	Name string // or empty: requests
	Rule *Rule
}

// Key is a key of a [Set].
type Key struct {
	Spec      *keys.Spec
	Own       bool             // it is that of the policy or the rule, and not of By
	Namespace *store.Namespace // of its logs

	rule      *Rule
	overrides *store.Namespace // names the overrides of its identities
}

// is reports whether two keys find the same logs for a request.
func (k *Key) is(other *Key) bool { return k.Spec == other.Spec && k.Namespace == other.Namespace }

// Rule returns the rule that the key is of.
func (k *Key) Rule() *Rule { return k.rule }

// IsBy reports whether a key is that of limits with By, or the own one if spec is nil.
func (k *Key) IsBy(spec *keys.Spec) bool {
	return spec == nil && k.Own || spec != nil && k.Spec == spec
}

// sharesOverrides reports whether two keys have the same overrides. Keys of different kinds of identities never do.
func (k *Key) sharesOverrides(other *Key) bool {
	return k.overrides == other.overrides &&
		(k.Spec == other.Spec || k.Spec != nil && other.Spec != nil && k.Spec.Shares(other.Spec))
}

// IsOwn reports whether all limits have the own key.
func (s *Set) IsOwn() bool { return len(s.Keys) == 1 && s.Keys[0].Own }

// MostLimits is how many limits a policy, a rule, a set that LimitBy chooses, and an override have at most.
const MostLimits = 8

// check returns what is wrong with limits of one policy or rule. All of them are valid.
func check(limits []Limit, option string) error {
	var faults []error
	fault := func(value, problem, remedy string) {
		faults = append(faults, configError(option, value, problem, remedy))
	}
	switch {
	case len(limits) == 0:
		fault("none", "there are no limits", "pass at least one, such as core.PerMinute(100)")
	case len(limits) > MostLimits:
		fault(strconv.Itoa(len(limits)), "there are too many limits", fmt.Sprintf("use at most %d", MostLimits))
	}
	for i := range limits {
		l := &limits[i]
		for j := range i {
			before := &limits[j]
			switch same := before.key.Spec == l.key.Spec; {
			case l.named && before.named && l.Name == before.Name:
				fault(l.Text, fmt.Sprintf("two limits have the name %q", l.Name), "give one of them another name")
			case same && before.Log() == l.Log() && l.Log() != "":
				fault(before.Text+", "+l.Text, "two limits of one key count the same, so the larger never denies",
					"remove the larger one, or give it another key or unit")
			case !same && before.key.mayBe(l.key):
				fault(before.Text+", "+l.Text, "the keys of these limits are two, and may name the same logs",
					"give one of the limits a name with Named, or both the same key")
			}
		}
	}
	return errors.Join(faults...)
}

// mayBe reports whether two keys that differ may find the same logs.
func (k *Key) mayBe(other *Key) bool {
	return k.Namespace == other.Namespace && k.Spec != nil && other.Spec != nil && k.Spec.Shares(other.Spec)
}

// newSet makes a set of limits. With overrides it replaces another set, whose keys and units it has, which is not nil.
func newSet(limits []Limit, before *Set) *Set {
	limits = slices.Clone(limits)
	s := &Set{Limits: limits}
	if before != nil {
		s.plain, s.Keys, s.Units = cmp.Or(before.plain, before), slices.Clip(before.Keys), slices.Clip(before.Units)
	}
	s.findKeys()
	s.nameApart()
	s.findUnits()
	s.Names, s.order, s.Header = make([]string, len(limits)), make([]int, len(limits)), header(limits)
	for i := range limits {
		s.Names[i], s.order[i] = limits[i].Name, i
	}
	slices.SortStableFunc(s.order, func(a, b int) int { return cmp.Compare(limits[a].Key, limits[b].Key) })
	s.inOrder = slices.IsSorted(s.order)
	return s
}

func (s *Set) findKeys() {
	for i := range s.Limits {
		l := &s.Limits[i]
		l.Key = slices.IndexFunc(s.Keys, l.key.is)
		if l.Key < 0 {
			l.Key = len(s.Keys)
			s.Keys = append(s.Keys, l.key)
		}
	}
}

// nameApart gives different names to limits that were given none, since their names would be equal.
func (s *Set) nameApart() {
	isTaken := func(name string, except int) bool {
		for i := range s.Limits {
			if i != except && s.Limits[i].Name == name && (s.Limits[i].named || i < except) {
				return true
			}
		}
		return false
	}
	for i := range s.Limits {
		l := &s.Limits[i]
		for n, name := 2, l.Name; !l.named && isTaken(l.Name, i); n++ {
			l.Name = name + "-" + strconv.Itoa(n)
		}
	}
}

// findUnits sets what follows from the units of the limits.
func (s *Set) findUnits() {
	s.Longest, s.leasable = -1, len(s.Limits) > 0
	for i := range s.Limits {
		l := &s.Limits[i]
		if l.InFlight {
			continue
		}
		of := Unit{l.Unit, l.key.rule}
		if l.unit = slices.Index(s.Units, of); l.unit < 0 {
			l.unit = len(s.Units)
			s.Units = append(s.Units, of)
		}
	}
	if len(s.Units) > 0 && !s.Counts(limittext.Requests) {
		s.Unit = s.Units[0].Name
	}
	for i := range s.Limits {
		l := &s.Limits[i]
		l.unnamed = !l.InFlight && l.Unit == s.Unit
		s.leasable = s.leasable && l.unnamed && !l.unlimited && l.KeepsEntries()
		s.counters, s.InFlight = s.counters || !l.KeepsEntries(), s.InFlight || l.InFlight
		s.mixed = s.mixed || !l.InFlight && !l.unnamed
		if l.unnamed && (s.Longest < 0 || l.Window > s.Limits[s.Longest].Window) {
			s.Longest = i
		}
	}
}

// ConcurrentRequests is the unit of limits of requests in flight in header fields.
const ConcurrentRequests = "concurrent-requests"

// header returns the field RateLimit-Policy.
func header(limits []Limit) string {
	var b strings.Builder
	for i := range limits {
		l := &limits[i]
		if l.unlimited {
			continue
		}
		if b.Len() > 0 {
			b.WriteString(", ")
		}
		if l.InFlight {
			fmt.Fprintf(&b, `"%s";q=%d;qu="%s"`, l.Name, l.Quota, ConcurrentRequests)
			continue
		}
		unit := ""
		if l.Unit != "" {
			unit = `;qu="` + l.Unit + `"`
		}
		window := l.Window
		if like := &l.log.like; like.Refill > 0 { // the rate is that of the whole bucket
			window = time.Duration(like.Interval() * int64(l.Quota))
		}
		fmt.Fprintf(&b, `"%s";q=%d%s;w=%d`, l.Name, l.Quota, unit, Seconds(window))
	}
	return b.String()
}

// Seconds rounds up, so that a client which waits that long is not too early.
func Seconds(d time.Duration) int64 { return int64((d + time.Second - 1) / time.Second) }

// UnitNames returns the names of the units that the limits count, such as "requests".
func (s *Set) UnitNames() (all []string) {
	for _, u := range s.Units {
		if name := limittext.UnitName(u.Name); !slices.Contains(all, name) {
			all = append(all, name)
		}
	}
	return all
}

// Text returns the limits as users write them.
func (s *Set) Text() string {
	texts := make([]string, len(s.Limits))
	for i := range s.Limits {
		texts[i] = s.Limits[i].Text
	}
	return strings.Join(texts, ",")
}

// Counts reports whether a limit counts the unit with a name.
func (s *Set) Counts(name string) bool {
	return slices.ContainsFunc(s.Units, func(u Unit) bool { return limittext.UnitName(u.Name) == name })
}

// NoUnnamed returns an error for a call or option if it is not certain of which unit a cost without a name is: if there
// are several, and none is requests.
func (s *Set) NoUnnamed(call string) error {
	if s.Unit == "" || !s.mixed {
		return nil
	}
	return configError(call, "without a unit",
		"the limits count several units: "+strings.Join(s.UnitNames(), ", "),
		"use AllowCosts, SettleCosts or WithCostOf, which name them")
}
