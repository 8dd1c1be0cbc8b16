package engine

import (
	"github.com/sashlimit/sash/core/internal/next/keys"
	"github.com/sashlimit/sash/core/internal/next/store"
)

// Set is limits that are decided together: those of a policy, of a request's rules, or either with overrides. It is not
// changed after it was made. The zero Set has no limits, so it admits all.
type Set struct {
	Limits []Limit // in the order in which they were written
	Keys   []Key   // of the limits; those of one policy have its own key first, if a limit has it
	Header string  // the field RateLimit-Policy; overrides that let a limit deny nothing leave it out

	Unit     string   // what costs without a name are of: requests if any limit counts these, else the only unit
	Units    []string // all other units
	Smallest int      // the smallest quota of Unit; math.MaxInt if no limit has a window
	Longest  int      // index of the limit of Unit with the longest window, or -1
}

// Key is a key of a [Set].
type Key struct {
	Spec      *keys.Spec
	Own       bool             // it is that of the policy or the rule, and not of By
	Namespace *store.Namespace // of its logs
	Rule      *Rule            // or nil
}

// Named returns the names of the units that the limits count, such as "requests".
func (s *Set) UnitNames() []string { return nil }

// Counts reports whether a limit counts the unit with a name.
func (s *Set) Counts(name string) bool { return false }

// NoUnnamed returns an error for a call or option if it is not certain of which unit a cost without a name is: if there
// are several, and none is requests.
func (s *Set) NoUnnamed(call string) error { return nil }

// Costs appends what a request costs of each limit to buf, for [Ask.Costs]: unnamed of the unit of costs without a name,
// unless costs names it; one request if it counts requests and is not asked otherwise; nothing of other units that costs
// does not name. The names are as in [Set.UnitNames].
func (s *Set) Costs(buf []int, unnamed int, costs map[string]int) []int { return nil }
