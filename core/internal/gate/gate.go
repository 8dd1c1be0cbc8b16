// Package gate reads requests for a limiter: whether a list names the client or the request is skipped, whose quota it
// uses, by which limits, and what it costs. What it has read it asks an engine.
package gate

import (
	"context"
	"errors"
	"strconv"

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
	Failed   func(context.Context, string, error) // is told which policy in shadow has failed, and why
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
	Borrowed bool   // the texts of Own may be in memory that a server uses again
	Refused  string // the rule in shadow whose deny list names the client, or empty
}

// Check decides about a request. The outcome is event.Listed or event.Skipped for one that passes without being asked,
// and otherwise meaningless.
func (g *Gate) Check(r adapter.Request, asked *Asked, res *engine.Result) (event.Outcome, error) {
	asked.Mode, asked.Borrowed = g.Mode, true
	if g.Rules == nil && !g.Rereads && g.Policy.Set != nil && g.Shadow == nil {
		return g.check(r, nil, asked, res)
	}
	rd := newReading(g, r)
	defer rd.free()
	return g.check(r, rd, asked, res)
}

func (g *Gate) check(r adapter.Request, rd *reading, asked *Asked, res *engine.Result) (event.Outcome, error) {
	own, full := &g.Prefixes, &keys.Full
	if rd != nil {
		own, full = &rd.own, &rd.full
	}
	switch passes, err := g.passes(r, full); {
	case err != nil:
		return 0, err
	case passes:
		return event.Listed, nil
	case g.Skip != nil && g.Skip(r):
		return event.Skipped, nil
	case g.Rules != nil:
		return g.checkRules(rd, asked, res)
	}
	var err error
	if asked.Own[0], err = g.Key.ReadOnce(r, own); err != nil {
		return 0, err
	}
	set := g.Policy.Set
	if set == nil {
		if set, err = g.choose(r, rd); err != nil {
			return 0, err
		}
	}
	ask := engine.Ask{
		Identities: asked.Own[:], Cost: 1, Mode: g.Mode, Tries: true, NoPermits: Holds(r.Context(), g.Engine),
	}
	if g.Cost != nil || g.Costs != nil || set.Unit != "" || set.Units != nil {
		if err = g.costs(r, nil, set, &ask); err != nil {
			return 0, err
		}
	}
	asked.Cost = ask.Cost
	if err = g.identities(r, rd, nil, set, &ask); err != nil {
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

// choose returns the set of limits that a request chooses.
func (g *Gate) choose(r adapter.Request, rd *reading) (*engine.Set, error) {
	var err error
	if rd.given, err = g.Policy.Choose(r, rd.given[:0]); err != nil {
		return nil, err
	}
	set, err := g.Engine.Choose(rd.given, false)
	if err != nil {
		return nil, &OwnError{err}
	}
	return set, nil
}

// identities reads the other keys of a set, besides the own key, of a request or a call, and what is to be tried out.
func (g *Gate) identities(r adapter.Request, rd *reading, c *Call, set *engine.Set, a *engine.Ask) (err error) {
	own := a.Identities[0]
	if !set.IsOwn() {
		if a.Identities, err = g.read(r, rd, set, own); err != nil {
			return err
		}
	}
	if g.Shadow != nil {
		a.Shadow = g.shadow(r, rd, c, set, a, own)
	}
	return nil
}

// read reads the keys of a set, of which own has been read.
func (g *Gate) read(r adapter.Request, rd *reading, set *engine.Set, own store.Identity) ([]store.Identity, error) {
	p := &g.Prefixes
	if rd != nil {
		p = &rd.own
	}
	all := make([]store.Identity, len(set.Keys))
	for i, k := range set.Keys {
		if k.Spec == g.Key {
			all[i] = own
			continue
		}
		var err error
		if all[i], err = k.Spec.ReadOnce(r, p); err != nil {
			return nil, keyError(set, i, r, err)
		}
	}
	return all, nil
}

// costs sets what a request, or a call with named costs, costs: without a name, and for each limit unless that tells
// it.
func (g *Gate) costs(r adapter.Request, c *Call, set *engine.Set, a *engine.Ask) (err error) {
	if a.Cost, err = g.costOf(r, c, set, set.Unit); err == nil && set.Units != nil {
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
			return 0, &OwnError{configError("WithCostOf", name, "the cost in "+name+" is below 0", "return 0 or more")}
		}
		return cost, nil
	case c == nil && g.Cost != nil && unit == inForce.Unit:
		cost := g.Cost(r)
		if cost < 1 {
			return 0, &OwnError{configError("cost", strconv.Itoa(cost), "a request costs at least 1 unit",
				"use WithSkip or Peek for requests that cost nothing")}
		}
		return cost, nil
	case unit == "":
		return 1, nil
	}
	return 0, &OwnError{CostUnknown(unit)}
}

// costsOf returns the costs of the limits of a set: that in force, which an Ask is for, or one that is tried out beside
// it. Each unit is asked for once.
func (g *Gate) costsOf(r adapter.Request, c *Call, of, inForce *engine.Set, a *engine.Ask) (all []int, err error) {
	all = make([]int, 0, len(of.Limits))
	for i := range of.Limits {
		l := &of.Limits[i]
		cost, known := 0, l.InFlight
		if !known && l.Unit == inForce.Unit {
			cost, known = a.Cost, true
		}
		if !known {
			cost, known = costIn(of, all, l.Unit)
		}
		if !known {
			cost, known = costIn(inForce, a.Costs, l.Unit)
		}
		if !known {
			if cost, err = g.costOf(r, c, inForce, l.Unit); err != nil {
				return nil, err
			}
		}
		all = append(all, cost)
	}
	return all, nil
}

// costIn returns the cost of a unit among those of the first limits of a set.
func costIn(set *engine.Set, costs []int, unit string) (cost int, known bool) {
	for i, cost := range costs {
		if l := &set.Limits[i]; !l.InFlight && l.Unit == unit {
			return cost, true
		}
	}
	return 0, false
}

type holdsKey struct{ of *engine.Engine }

// Holding returns a context that tells [Holds] of a request with permits.
func Holding(ctx context.Context, e *engine.Engine) context.Context {
	return context.WithValue(ctx, holdsKey{e}, true)
}

// Holds reports whether the request of a context holds permits of an engine. Then it takes no others.
func Holds(ctx context.Context, e *engine.Engine) bool {
	return e.MayHold() && ctx.Value(holdsKey{e}) != nil
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
