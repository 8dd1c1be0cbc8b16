package gate

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/sashlimit/sash/core/adapter"
	"github.com/sashlimit/sash/core/event"
	"github.com/sashlimit/sash/core/internal/engine"
	"github.com/sashlimit/sash/core/internal/keys"
	"github.com/sashlimit/sash/core/store"
)

// Choice is which rules a request is asked about. It reads each key once.
type Choice struct {
	CountDenied bool // denials are recorded, as with WithCountDenied
	Listed      bool // the request passes because of an allow list; used if no rule is added

	// Ambiguous says that the request's path can be read in several ways. If the rules of all of them cannot be decided
	// together, those in shadow are left out, and then the request is refused (400), since clients choose how a path is
	// spelled.
	Ambiguous bool

	gate    *Gate
	request adapter.Request
	reading *reading
	rules   []Applied
	failed  []Failure
}

// Applied is a rule that applies to a request, and what the request costs by it.
type Applied struct {
	Rule  *engine.Rule
	Cost  int // requests
	Units []UnitCost
}

// UnitCost is what a request takes of a unit with a name.
type UnitCost struct {
	Unit string
	Cost int
}

// Failure is a rule in shadow that could not be asked.
type Failure struct {
	Policy string
	Err    error
}

// Add adds a rule that applies to the request, which takes cost requests and so many of other units. One in shadow is
// left out if the request lacks a key of its limits.
func (c *Choice) Add(r *engine.Rule, cost int, units []UnitCost) {
	if !r.Shadow || c.hasKeys(r) {
		c.rules = append(c.rules, Applied{r, cost, units})
	}
}

// Applied returns the rules that were added.
func (c *Choice) Applied() []Applied { return c.rules }

// Fail notes that a rule in shadow could not be asked. Observers get the error, and the request is decided without it.
func (c *Choice) Fail(policy string, err error) { c.failed = append(c.failed, Failure{policy, err}) }

// Identity returns what a key finds in the request. An address has all its bits.
func (c *Choice) Identity(k *keys.Spec) (store.Identity, error) {
	return k.ReadOnce(c.request, &c.reading.full)
}

// Names reports whether a list names the client of the request.
func (c *Choice) Names(l *keys.List) (bool, error) { return names(l, c.request, &c.reading.full) }

// hasKeys reports whether all keys of a rule in shadow can be read, and notes errors.
func (c *Choice) hasKeys(r *engine.Rule) bool {
	for i, k := range r.Set().Keys {
		if _, err := k.Spec.ReadOnce(c.request, &c.reading.own); err != nil {
			if !errors.Is(err, keys.ErrNoKey) {
				c.Fail(r.Policy, keyError(r.Set(), i, c.request, err))
			}
			return false
		}
	}
	return true
}

// RulesError is an error of the rules that apply to a request, as opposed to one of the request.
type RulesError struct{ Err error }

func (e *RulesError) Error() string { return e.Err.Error() }
func (e *RulesError) Unwrap() error { return e.Err }

// checkRules decides about a request by the rules that apply to it.
func (g *Gate) checkRules(rd *reading, asked *Asked, res *engine.Result) (event.Outcome, error) {
	c := &rd.choice
	r := c.request
	err := g.Rules(r, c)
	if err != nil {
		return 0, err
	}
	for _, f := range c.failed {
		if errors.Is(f.Err, ErrForbidden) { // it is tried as well, and not a mistake
			asked.Refused = cmp.Or(asked.Refused, f.Policy)
			continue
		}
		g.Failed(r.Context(), f.Policy, f.Err)
	}
	switch {
	case len(c.rules) == 0 && c.Listed:
		return event.Listed, nil
	case len(c.rules) == 0:
		return event.Skipped, nil
	}
	mode := g.Mode
	if c.CountDenied {
		mode = store.ModeChargeDenied
	}
	asked.Mode = mode
	return 0, ownCost(c.decide(mode, true, asked, res))
}

// Preview decides about a request by the rules that choose adds, and takes nothing. The result has no set if there are
// none.
func (g *Gate) Preview(r adapter.Request, choose func(adapter.Request, *Choice) error, res *engine.Result) error {
	rd := newReading(g, r)
	defer rd.free()
	if err := choose(r, &rd.choice); err != nil || len(rd.choice.rules) == 0 {
		return err
	}
	return rd.choice.decide(store.ModePeek, false, new(Asked), res)
}

// decide asks the engine about the rules that were added.
func (c *Choice) decide(mode store.Mode, tries bool, asked *Asked, res *engine.Result) error {
	g, r := c.gate, c.request
	set, shadow, err := c.combine()
	if err != nil {
		return err
	}
	ask := engine.Ask{Mode: mode, Tries: tries, NoPermits: Holds(r.Context(), g.Engine)}
	ask.Identities, ask.Costs = c.reading.identities, c.reading.costs
	if err = c.read(set, &ask); err != nil {
		return err
	}
	c.reading.identities, c.reading.costs = ask.Identities, ask.Costs
	asked.note(&ask)
	if shadow != nil {
		ask.Shadow = &engine.Trial{Set: shadow}
		if err = c.read(shadow, &ask.Shadow.Ask); err != nil { // hasKeys has read them
			return err
		}
		if len(set.Limits) == 0 { // all rules are in shadow
			asked.note(&ask.Shadow.Ask)
		}
	}
	return g.Engine.Decide(r.Context(), set, &ask, res)
}

// note notes whose quota a request uses by rules: that of the first key.
func (a *Asked) note(of *engine.Ask) {
	if a.Cost = of.Cost; len(of.Identities) > 0 {
		a.Own[0] = of.Identities[0]
	}
}

// combine returns the sets of the rules, and of those in shadow.
func (c *Choice) combine() (set, shadow *engine.Set, err error) {
	rules := make([]*engine.Rule, len(c.rules))
	for i := range c.rules {
		rules[i] = c.rules[i].Rule
	}
	if set, shadow, err = c.gate.Engine.Combine(rules); err == nil {
		return set, shadow, nil
	}
	if !c.Ambiguous {
		return nil, nil, &RulesError{err}
	}
	err = fmt.Errorf("sash: the request's path can be read in several ways: %w", err)
	return nil, nil, &OwnError{adapter.ErrorWithCause(err, keys.ErrNoKey)}
}

// read appends identities and costs to those of an Ask.
func (c *Choice) read(set *engine.Set, a *engine.Ask) error {
	for i, k := range set.Keys {
		id, err := k.Spec.ReadOnce(c.request, &c.reading.own)
		if err != nil {
			return keyError(set, i, c.request, err)
		}
		a.Identities = append(a.Identities, id)
	}
	rule := 0
	for i := range set.Limits {
		l := &set.Limits[i]
		for c.rules[rule].Rule != l.Rule() { // limits are in the order of their rules
			rule++
		}
		a.Costs = append(a.Costs, c.rules[rule].Of(l.Unit))
		if l.Unit == set.Unit && !l.InFlight && a.Cost == 0 {
			a.Cost = a.Costs[i]
		}
	}
	a.Cost = max(a.Cost, 1)
	return nil
}

// Of returns what the request costs of a unit.
func (a *Applied) Of(unit string) int {
	if unit == "" {
		return a.Cost
	}
	for _, u := range a.Units {
		if u.Unit == unit {
			return u.Cost
		}
	}
	return 0
}
