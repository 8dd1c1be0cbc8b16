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
	Identity store.Identity // whose quota it uses
	Cost     int
	Mode     store.Mode
	Borrowed bool   // the texts of Identity may be in memory that a server uses again
	Refused  string // the rule in shadow whose deny list names the client, or empty
}

// Check decides about a request. The outcome is event.Listed or event.Skipped for one that passes without being asked,
// and otherwise meaningless.
func (g *Gate) Check(r adapter.Request, asked *Asked, res *engine.Result) (event.Outcome, error) {
	asked.Mode, asked.Borrowed = g.Mode, true
	if g.Rules == nil && !g.Rereads && g.Policy.Set != nil && g.Shadow == nil {
		return g.check(r, &g.Prefixes, &keys.Full, nil, asked, res)
	}
	rd := newReading(g, r)
	defer rd.free()
	return g.check(r, &rd.own, &rd.full, rd, asked, res)
}

func (g *Gate) check(
	r adapter.Request, own, full *keys.Prefixes, rd *reading, asked *Asked, res *engine.Result,
) (event.Outcome, error) {
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
	var one [1]store.Identity
	var err error
	if one[0], err = g.Key.ReadOnce(r, own); err != nil {
		return 0, err
	}
	asked.Identity = one[0]
	set := g.Policy.Set
	if set == nil {
		if set, err = g.choose(r, rd); err != nil {
			return 0, err
		}
	}
	ask := engine.Ask{Cost: 1, Mode: g.Mode, Tries: true, NoPermits: Holds(r.Context(), g.Engine)}
	if g.Cost != nil || g.Costs != nil || set.Unit != "" || set.Units != nil {
		if ask.Cost, ask.Costs, err = g.costs(r, set); err != nil {
			return 0, err
		}
	}
	asked.Cost = ask.Cost
	if ask.Identities = one[:]; !set.IsOwn() {
		if ask.Identities, err = g.identities(r, own, set, one[0]); err != nil {
			return 0, err
		}
	}
	if g.Shadow == nil {
		return 0, ownCost(g.Engine.Decide(r.Context(), set, &ask, res))
	}
	return 0, ownCost(g.checkBoth(r, rd, set, &ask, one[0], nil, res))
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
	set, err := g.Engine.Choose(rd.given)
	if err != nil {
		return nil, &OwnError{err}
	}
	return set, nil
}

// identities reads the keys of a set, of which own has been read.
func (g *Gate) identities(
	r adapter.Request, p *keys.Prefixes, set *engine.Set, own store.Identity,
) ([]store.Identity, error) {
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

// costs returns what a request costs: the cost without a name, and those of the limits, or nil if that tells them.
func (g *Gate) costs(r adapter.Request, set *engine.Set) (unnamed int, all []int, err error) {
	f, byName := g.Cost, g.Costs[limittext.UnitName(set.Unit)]
	switch {
	case byName != nil:
		if unnamed = byName(r); unnamed < 0 {
			return 0, nil, costBelow0(set.Unit)
		}
	case f != nil:
		if unnamed = f(r); unnamed < 1 {
			return 0, nil, costBelow1(unnamed)
		}
	case set.Unit != "":
		return 0, nil, &OwnError{CostUnknown(set.Unit)}
	default:
		unnamed = 1
	}
	if set.Units == nil {
		return unnamed, nil, nil
	}
	all, err = costsOf(set, func(unit string) (int, error) {
		if unit == set.Unit {
			return unnamed, nil
		}
		f := g.Costs[limittext.UnitName(unit)]
		if f == nil {
			return 0, &OwnError{CostUnknown(unit)}
		}
		cost := f(r)
		if cost < 0 {
			return 0, costBelow0(unit)
		}
		return cost, nil
	})
	return unnamed, all, err
}

// costsOf returns the costs of the limits of a set. It calls cost once for each unit.
func costsOf(set *engine.Set, cost func(unit string) (int, error)) (all []int, err error) {
	all = make([]int, len(set.Limits))
	for i := range set.Limits {
		l := &set.Limits[i]
		if l.InFlight {
			continue
		}
		known := false
		for j := range i {
			if before := &set.Limits[j]; !before.InFlight && before.Unit == l.Unit {
				all[i], known = all[j], true
				break
			}
		}
		if known {
			continue
		}
		if all[i], err = cost(l.Unit); err != nil {
			return nil, err
		}
	}
	return all, nil
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

func costBelow0(unit string) error {
	unit = limittext.UnitName(unit)
	return &OwnError{configError("WithCostOf", unit, "the cost in "+unit+" is below 0", "return 0 or more")}
}

func costBelow1(cost int) error {
	return &OwnError{configError("cost", strconv.Itoa(cost), "a request costs at least 1 unit",
		"use WithSkip or Peek for requests that cost nothing")}
}

// CostUnknown returns the error for a unit for which there is no WithCostOf.
func CostUnknown(unit string) error {
	return configError("WithCostOf", unit, "no function returns what a request costs",
		"add core.WithCostOf("+strconv.Quote(unit)+", ...)")
}

func configError(option, value, problem, remedy string) error {
	return &store.ConfigError{Option: option, Value: value, Problem: problem, Remedy: remedy}
}
