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
	return k.ReadOnce(c.request, &c.full)
}

// Names reports whether a list names the client of the request.
func (c *Choice) Names(l *keys.List) (bool, error) { return names(l, c.request, &c.full) }

// hasKeys reports whether all keys of a rule in shadow can be read, and notes errors.
func (c *Choice) hasKeys(r *engine.Rule) bool {
	_, err := c.gate.read(c.identities, c.request, &c.own, r.Set(), nil)
	if err != nil && !errors.Is(err, keys.ErrNoKey) {
		c.Fail(r.Policy, err)
	}
	return err == nil
}

// checkRules decides about a request by the rules that apply to it.
func (g *Gate) checkRules(c *Choice, asked *Asked, res *engine.Result) (event.Outcome, error) {
	if err := g.Rules(c.request, c); err != nil {
		return 0, err
	}
	defer c.tellFailed(asked)
	switch {
	case len(c.rules) == 0 && c.Listed:
		return event.Listed, nil
	case len(c.rules) == 0:
		return event.Skipped, nil
	case c.CountDenied:
		asked.Mode = store.ModeChargeDenied
	}
	return 0, ownCost(c.decide(asked, res))
}

// tellFailed tells observers which rules in shadow could not be asked, and notes the denial by a list of one.
func (c *Choice) tellFailed(asked *Asked) {
	for _, f := range c.failed {
		if errors.Is(f.Err, ErrForbidden) { // it is tried as well, and not a mistake
			asked.Refused = cmp.Or(asked.Refused, f.Policy)
			continue
		}
		c.gate.Engine.ShadowFailed(c.request.Context(), f.Policy, f.Err)
	}
}

// Preview decides about a request by the rules that choose adds, and takes nothing. The result has no set if there are
// none.
func (g *Gate) Preview(r adapter.Request, choose func(adapter.Request, *Choice) error, res *engine.Result) error {
	c := newChoice(g, r)
	defer c.free()
	if err := choose(r, c); err != nil || len(c.rules) == 0 {
		return err
	}
	return c.decide(&Asked{Mode: store.ModePeek}, res)
}

// decide asks the engine about the rules that were added.
func (c *Choice) decide(asked *Asked, res *engine.Result) error {
	g, r := c.gate, c.request
	rules := make([]*engine.Rule, len(c.rules))
	for i := range c.rules {
		rules[i] = c.rules[i].Rule
	}
	set, err := g.Engine.Combine(rules, false)
	if err != nil {
		return c.cannotDecide(err)
	}
	ask := engine.Ask{
		Identities: c.identities, Costs: c.costs, Mode: asked.Mode, NoPermits: g.holds(r, set),
	}
	if err = c.read(set, &ask); err != nil {
		return err
	}
	c.identities, c.costs = ask.Identities, ask.Costs
	asked.note(&ask)
	shadow, err := g.Engine.Combine(rules, true)
	if err != nil {
		c.Fail(g.Engine.Policy(), err)
	} else if len(shadow.Limits) > 0 {
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

// cannotDecide returns the error for rules that cannot be decided together.
func (c *Choice) cannotDecide(err error) error {
	if c.Ambiguous {
		err = fmt.Errorf("sash: the request's path can be read in several ways: %w", err)
		err = adapter.ErrorWithCause(err, keys.ErrNoKey)
	}
	return &adapter.ConstantError{Err: err}
}

// read appends identities and costs to those of an Ask.
func (c *Choice) read(set *engine.Set, a *engine.Ask) (err error) {
	if a.Identities, err = c.gate.read(a.Identities, c.request, &c.own, set, nil); err != nil {
		return err
	}
	rule := 0
	for _, u := range set.Units {
		for c.rules[rule].Rule != u.Rule { // units are in the order of their rules
			rule++
		}
		cost := c.rules[rule].Of(u.Name)
		if a.Costs = append(a.Costs, cost); u.Name == set.Unit && a.Cost == 0 {
			a.Cost = cost
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
