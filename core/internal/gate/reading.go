package gate

import (
	"context"
	"errors"
	"sync"

	"github.com/sashlimit/sash/core/adapter"
	"github.com/sashlimit/sash/core/internal/engine"
	"github.com/sashlimit/sash/core/internal/keys"
	"github.com/sashlimit/sash/core/internal/limittext"
	"github.com/sashlimit/sash/core/store"
)

// reading is what is read of a request that reads keys more than once, or chooses its limits.
type reading struct {
	own, full keys.Prefixes // of the gate, and of lists
	memo      keys.Memo
	given     []engine.Given
	choice    Choice

	identities []store.Identity // of what rules ask
	costs      []int
}

var readings = sync.Pool{New: func() any { return new(reading) }}

func newReading(g *Gate, r adapter.Request) *reading {
	rd := readings.Get().(*reading) //nolint:forcetypeassert // nothing else is in the pool
	rd.own, rd.full = g.Prefixes, keys.Full
	rd.own.Memo, rd.full.Memo = &rd.memo, &rd.memo
	rd.choice.request, rd.choice.reading, rd.choice.gate = r, rd, g
	return rd
}

func (rd *reading) free() {
	clear(rd.memo)
	clear(rd.given[:cap(rd.given)])
	clear(rd.choice.rules)
	clear(rd.identities)
	*rd = reading{
		memo: rd.memo[:0], given: rd.given[:0], choice: Choice{rules: rd.choice.rules[:0]},
		identities: rd.identities[:0], costs: rd.costs[:0],
	}
	readings.Put(rd)
}

// checkBoth asks the engine, and has it try out the shadow with the keys and costs that were read. What is wrong with
// the shadow does not affect the decision.
func (g *Gate) checkBoth(
	r adapter.Request, rd *reading, set *engine.Set, ask *engine.Ask, own store.Identity, c *Call, res *engine.Result,
) error {
	shadow := g.readShadow(r, rd, set, ask, own, c)
	if shadow == nil {
		return g.Engine.Decide(r.Context(), set, ask, res)
	}
	return g.Engine.DecideBoth(r.Context(), set, ask, shadow, res)
}

// readShadow returns what a request, or the call c, asks the limits that are tried out. It returns nil if that cannot
// be read.
func (g *Gate) readShadow(
	r adapter.Request, rd *reading, set *engine.Set, ask *engine.Ask, own store.Identity, c *Call,
) *engine.Trial {
	shadow := engine.Trial{Ask: engine.Ask{Mode: ask.Mode, Cost: ask.Cost}}
	if err := g.askShadow(r, rd, set, ask, own, c, &shadow); err != nil {
		if !errors.Is(err, keys.ErrNoKey) && !errors.Is(err, ErrNeedsRequest) {
			g.Failed(r.Context(), g.Engine.Policy(), err)
		}
		return nil
	}
	return &shadow
}

func (g *Gate) askShadow(
	r adapter.Request, rd *reading, set *engine.Set, ask *engine.Ask, own store.Identity, c *Call, shadow *engine.Trial,
) (err error) {
	if shadow.Set = g.Shadow.Set; shadow.Set == nil {
		if rd.given, err = g.Shadow.Choose(r, rd.given[:0]); err != nil {
			return err
		}
		if shadow.Set, err = g.Engine.ChooseShadow(rd.given); err != nil {
			return err
		}
	}
	if shadow.Ask.Identities, err = g.identities(r, &rd.own, shadow.Set, own); err != nil {
		return err
	}
	shadow.Ask.Costs, err = costsOf(shadow.Set, func(unit string) (int, error) {
		for i := range set.Limits {
			if l := &set.Limits[i]; l.Unit == unit && !l.InFlight {
				if ask.Costs != nil {
					return ask.Costs[i], nil
				} else if unit == set.Unit {
					return ask.Cost, nil
				}
			}
		}
		name := limittext.UnitName(unit)
		switch f := g.Costs[name]; {
		case c != nil && c.Named:
			cost, named := c.Costs[name]
			if !named {
				cost = c.unnamed(unit)
			}
			return cost, nil
		case f != nil && c == nil:
			return max(f(r), 0), nil
		case unit == "":
			return 1, nil
		}
		return 0, CostUnknown(unit)
	})
	return err
}

// Counts reports whether limits count the unit with a name, or may do so if requests choose them.
func (p *Policy) Counts(name string) bool { return p != nil && (p.Set == nil || p.Set.Counts(name)) }

// NoRequest is what callbacks get in calls with a context and no request.
type NoRequest struct{ Ctx context.Context }

// Context implements [adapter.Request], as the other methods do.
func (r NoRequest) Context() context.Context { return r.Ctx }

// Peer returns none.
func (NoRequest) Peer() adapter.Peer { return adapter.Peer{} }

// Header returns none.
func (NoRequest) Header(string) []string { return nil }

// Value returns a value of the context.
func (r NoRequest) Value(key any) any { return r.Ctx.Value(key) }

// Native returns none.
func (NoRequest) Native() any { return nil }

// Call asks for a call without a request. Cost is of costs without a name; costs are those of units with a name, or
// nil.
type Call struct {
	Identity store.Identity
	Cost     int
	Costs    map[string]int // by the name of the unit; units that it does not name cost Rest
	Named    bool           // Costs counts, even if it is nil
	Rest     int
	Mode     store.Mode
	Tries    bool
}

// Sets returns the set of limits for a call without a request.
func (g *Gate) Sets(ctx context.Context) (*engine.Set, error) {
	if g.Policy.Set != nil {
		return g.Policy.Set, nil
	}
	r := NoRequest{ctx}
	rd := newReading(g, r)
	defer rd.free()
	return g.choose(r, rd)
}

// unnamed returns the cost of a unit that a call with named costs does not name.
func (c *Call) unnamed(unit string) int {
	if unit == "" {
		return c.Cost
	}
	return c.Rest
}

// ask makes an Ask of a call. It is about the identity in own, if the limits have no other keys.
func (g *Gate) ask(ctx context.Context, set *engine.Set, c *Call, own []store.Identity) (ask engine.Ask, err error) {
	ask = engine.Ask{Identities: own, Cost: c.Cost, Mode: c.Mode, Tries: c.Tries}
	if !set.IsOwn() {
		if ask.Identities, err = g.identities(NoRequest{ctx}, &g.Prefixes, set, c.Identity); err != nil {
			return ask, err
		}
	}
	if !c.Named {
		return ask, nil
	}
	cost := func(unit string) (int, error) {
		if cost, named := c.Costs[limittext.UnitName(unit)]; named {
			return cost, nil
		}
		return c.unnamed(unit), nil
	}
	if ask.Cost, err = cost(set.Unit); set.Units != nil {
		ask.Costs, err = costsOf(set, cost)
	}
	return ask, err
}

// ErrNeedsRequest is why limits cannot be chosen for a call without a request.
var ErrNeedsRequest = errors.New("sash: LimitBy takes a request, but this call has none")

// Decide decides about a call without a request.
func (g *Gate) Decide(ctx context.Context, set *engine.Set, c *Call, res *engine.Result) error {
	own := [1]store.Identity{c.Identity}
	ask, err := g.ask(ctx, set, c, own[:])
	if err != nil {
		return err
	}
	if g.Shadow == nil {
		return ownCost(g.Engine.Decide(ctx, set, &ask, res))
	}
	r := NoRequest{ctx}
	rd := newReading(g, r)
	defer rd.free()
	return ownCost(g.checkBoth(r, rd, set, &ask, c.Identity, c, res))
}

// Wait decides about a call that waits until it is admitted. What is tried out does not wait: it is asked then.
func (g *Gate) Wait(ctx context.Context, set *engine.Set, c *Call, res *engine.Result) error {
	own := [1]store.Identity{c.Identity}
	ask, err := g.ask(ctx, set, c, own[:])
	if err != nil {
		return err
	}
	if err = g.Engine.Wait(ctx, set, &ask, res); err != nil || !res.Allowed || g.Shadow == nil {
		return err
	}
	r := NoRequest{ctx}
	rd := newReading(g, r)
	defer rd.free()
	if shadow := g.readShadow(r, rd, set, &ask, c.Identity, c); shadow != nil {
		res.TryOut(ctx, shadow)
	}
	return nil
}
