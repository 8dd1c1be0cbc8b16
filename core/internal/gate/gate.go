// Package gate reads requests for a limiter: whether a list names the client or the request is skipped, whose quota it
// uses, by which limits, and what it costs. What it has read it asks an engine.
package gate

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"time"

	"github.com/sashlimit/sash/core/adapter"
	"github.com/sashlimit/sash/core/event"
	"github.com/sashlimit/sash/core/internal/engine"
	"github.com/sashlimit/sash/core/internal/guard"
	"github.com/sashlimit/sash/core/internal/keys"
	"github.com/sashlimit/sash/core/internal/limittext"
	"github.com/sashlimit/sash/core/store"
)

// Gate is what middleware adds to an engine.
type Gate struct {
	Engine   *engine.Engine
	Key      *keys.Spec
	Prefixes keys.Prefixes
	Lists    []*keys.List
	Skip     func(adapter.Request) bool           // or nil
	Cost     func(adapter.Request) int            // of costs without a name; nil: 1
	Costs    map[string]func(adapter.Request) int // by the name of the unit
	Mode     store.Mode                           // of requests
	Policy   Policy                               // unless there are rules
	Shadow   *Policy                              // what is tried out, or nil
	Rules    func(adapter.Request, *Choice) error // adds the rules that apply to a request, or nil
	Rereads  bool                                 // keys have parts in common, which are read once
}

// Policy is the limits of a gate, or what chooses them.
type Policy struct {
	Set *engine.Set // or nil: Choose is called

	// Choose appends the limits of a request. The error says why there are none for a call without a request.
	Choose func(adapter.Request, []engine.Given) ([]engine.Given, error)
}

// Written is a policy as it was written.
type Written struct {
	Name      string // unless another one is given
	Limits    []engine.Given
	Choose    func(adapter.Request, []engine.Given) ([]engine.Given, error) // without Limits
	Rules     func(adapter.Request, *Choice) error                          // without both
	Failure   guard.Failure                                                 // with Rules
	Callbacks []keys.Callback
}

// Asked is what was read of a request, as far as it was read.
type Asked struct {
	Own      [1]store.Identity // whose quota it uses; an array, since it may be all that an [engine.Ask] needs
	Cost     int
	Mode     store.Mode
	Began    time.Duration // when, on a clock of package core; 0: nobody needs it
	Borrowed bool          // the texts of Own may be in memory that a server uses again
	Refused  string        // the rule in shadow whose deny list names the client, or empty
}

// Check decides about a request. The outcome is event.Listed or event.Skipped for one that passes without being asked,
// and otherwise meaningless.
func (g *Gate) Check(r adapter.Request, asked *Asked, res *engine.Result) (event.Outcome, error) {
	asked.Mode, asked.Borrowed = g.Mode, true
	if g.Rules == nil && !g.Rereads && g.Policy.Set != nil && g.Shadow == nil {
		return g.check(r, nil, asked, res)
	}
	chosen := newChoice(g, r)
	defer chosen.free()
	return g.check(r, chosen, asked, res)
}

func (g *Gate) check(r adapter.Request, chosen *Choice, asked *Asked, res *engine.Result) (event.Outcome, error) {
	own, full := &g.Prefixes, &keys.Full
	if chosen != nil {
		own, full = &chosen.own, &chosen.full
	}
	switch passes, err := g.passes(r, full); {
	case err != nil:
		return 0, err
	case passes:
		return event.Listed, nil
	case g.Skip != nil && g.Skip(r):
		return event.Skipped, nil
	case g.Rules != nil:
		return g.checkRules(chosen, asked, res)
	}
	var err error
	if asked.Own[0], err = g.Key.ReadOnce(r, own); err != nil {
		return 0, err
	}
	set, err := g.Policy.of(chosen)
	if err != nil {
		return 0, err
	}
	ask := engine.Ask{
		Identities: asked.Own[:], Cost: 1, Mode: g.Mode, NoPermits: g.holds(r, set),
	}
	if g.Cost != nil || g.Costs != nil || set.Unit != "" || len(set.Units) > 1 {
		if err = g.costs(r, nil, set, &ask); err != nil {
			return 0, err
		}
	}
	asked.Cost = ask.Cost
	if err = g.identities(r, chosen, nil, set, &ask); err != nil {
		return 0, err
	}
	return 0, ownCost(g.Engine.Decide(r.Context(), set, &ask, res))
}

// passes reports whether an allow list names the client. If a deny list does, the error is ErrForbidden.
func (g *Gate) passes(r adapter.Request, full *keys.Prefixes) (passes bool, err error) {
	for _, l := range g.Lists {
		if passes && l.Passes {
			continue
		}
		found, err := names(l, r, full)
		if err != nil {
			return false, err
		}
		if found && !l.Passes {
			return false, ErrForbidden
		}
		passes = passes || found
	}
	return passes, nil
}

// names reports whether a list names the client of a request.
func names(l *keys.List, r adapter.Request, full *keys.Prefixes) (bool, error) {
	found, err := l.Names(r, full)
	if err != nil {
		return false, &ListError{err}
	}
	return found, nil
}

// Exempt reports whether a list or Skip passes a request before it is asked.
func (g *Gate) Exempt(r adapter.Request) (passes bool, err error) {
	passes, err = g.passes(r, &keys.Full)
	return passes || err == nil && g.Skip != nil && g.Skip(r), err
}

// of returns the limits of a request. There is a choice unless they are known.
func (p *Policy) of(c *Choice) (set *engine.Set, err error) {
	if p.Set != nil {
		return p.Set, nil
	}
	if c.limits, err = p.Choose(c.request, c.limits[:0]); err != nil {
		return nil, err
	}
	if set, err = c.gate.Engine.Choose(c.limits, p == c.gate.Shadow); err != nil {
		return nil, &adapter.ConstantError{Err: err}
	}
	return set, nil
}

// identities reads the other keys of a set, besides the own key, of a request or a call, and what is to be tried out.
func (g *Gate) identities(r adapter.Request, chosen *Choice, c *Call, set *engine.Set, a *engine.Ask) (err error) {
	own, p := a.Identities, &g.Prefixes
	if chosen != nil {
		p = &chosen.own
	}
	if !set.IsOwn() {
		if a.Identities, err = g.read(make([]store.Identity, 0, len(set.Keys)), r, p, set, own); err != nil {
			return err
		}
	}
	if g.Shadow != nil {
		a.Shadow = chosen.shadow(c, set, a, own)
	}
	return nil
}

// read appends what the keys of a set find to ids. own has what the gate's key has found, if that was read.
func (g *Gate) read(
	ids []store.Identity, r adapter.Request, p *keys.Prefixes, set *engine.Set, own []store.Identity,
) ([]store.Identity, error) {
	for i, k := range set.Keys {
		if own != nil && k.Spec == g.Key {
			ids = append(ids, own[0])
			continue
		}
		id, err := k.Spec.ReadOnce(r, p)
		if err != nil {
			return ids, keyError(set, i, r, err)
		}
		ids = append(ids, id)
	}
	return ids, nil
}

// costs sets what a request, or a call with named costs, costs: without a name, and in each unit if there are several.
func (g *Gate) costs(r adapter.Request, c *Call, set *engine.Set, a *engine.Ask) (err error) {
	if a.Cost, err = g.costOf(r, c, set, set.Unit); err == nil && len(set.Units) > 1 {
		a.Costs, err = g.costsOf(r, c, set, set, a)
	}
	return err
}

// costOf returns what a request or a call costs of a unit. Costs without a name are those of the set in force.
func (g *Gate) costOf(r adapter.Request, c *Call, inForce *engine.Set, unit string) (int, error) {
	name := limittext.UnitName(unit)
	f := g.Costs[name]
	switch {
	case c != nil && c.Named:
		cost, named := c.Costs[name]
		if !named && unit == "" {
			return c.Cost, nil
		} else if !named {
			return c.Rest, nil
		}
		return cost, nil
	case c == nil && f != nil:
		cost := f(r)
		if cost < 0 {
			err := configError("WithCostOf", name, "the cost in "+name+" is below 0", "return 0 or more")
			return 0, &adapter.ConstantError{Err: err}
		}
		return cost, nil
	case c == nil && g.Cost != nil && unit == inForce.Unit:
		cost := g.Cost(r)
		if cost < 1 {
			err := configError("cost", strconv.Itoa(cost), "a request costs at least 1 unit",
				"use WithSkip or Peek for requests that cost nothing")
			return 0, &adapter.ConstantError{Err: err}
		}
		return cost, nil
	case unit == "":
		return 1, nil
	}
	return 0, &adapter.ConstantError{Err: CostUnknown(unit)}
}

// costsOf returns the costs in the units of a set: that in force, which an Ask is for, or one that is tried out beside
// it. No unit is asked for twice.
func (g *Gate) costsOf(r adapter.Request, c *Call, of, inForce *engine.Set, a *engine.Ask) (all []int, err error) {
	all = make([]int, len(of.Units))
	for i, u := range of.Units {
		isOf := func(other engine.Unit) bool { return other.Name == u.Name }
		switch known := slices.IndexFunc(inForce.Units, isOf); {
		case u.Name == inForce.Unit:
			all[i] = a.Cost
		case known >= 0 && a.Costs != nil:
			all[i] = a.Costs[known]
		default:
			if all[i], err = g.costOf(r, c, inForce, u.Name); err != nil {
				return nil, err
			}
		}
	}
	return all, nil
}

type holdsKey struct{ of *engine.Engine }

// Holding returns a context that tells the gate of an engine that a request has its permits.
func Holding(ctx context.Context, e *engine.Engine) context.Context {
	return context.WithValue(ctx, holdsKey{e}, true)
}

// holds reports whether a request holds permits of the engine already. Then it takes no others.
func (g *Gate) holds(r adapter.Request, set *engine.Set) bool {
	return set.InFlight && r.Context().Value(holdsKey{g.Engine}) != nil
}

// ErrForbidden means that a deny list names the client.
var ErrForbidden = errors.New("sash: the client is on a deny list")

// CostUnknown returns the error for a unit for which there is no WithCostOf.
func CostUnknown(unit string) error {
	return configError("WithCostOf", unit, "no function returns what a request costs",
		"add core.WithCostOf("+strconv.Quote(unit)+", ...)")
}

func configError(option, value, problem, remedy string) error {
	return &store.ConfigError{Option: option, Value: value, Problem: problem, Remedy: remedy}
}
