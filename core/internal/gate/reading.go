package gate

import (
	"context"
	"errors"
	"sync"

	"github.com/sashlimit/sash/core/adapter"
	"github.com/sashlimit/sash/core/internal/engine"
	"github.com/sashlimit/sash/core/internal/keys"
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
	rd.memo.Clear()
	clear(rd.given[:cap(rd.given)])
	clear(rd.choice.rules)
	clear(rd.identities[:cap(rd.identities)])
	*rd = reading{
		memo: rd.memo, given: rd.given[:0], choice: Choice{rules: rd.choice.rules[:0]},
		identities: rd.identities[:0], costs: rd.costs[:0],
	}
	readings.Put(rd)
}

// shadow returns what a request, or the call c, asks the limits that are tried out, with the keys and costs that were
// read. It returns nil if that cannot be read, since what is wrong with the shadow does not affect the decision.
func (g *Gate) shadow(
	r adapter.Request, rd *reading, c *Call, set *engine.Set, a *engine.Ask, own []store.Identity,
) *engine.Trial {
	chosen, err := g.Shadow.of(g, r, rd)
	tried := &engine.Trial{Set: chosen, Ask: engine.Ask{Cost: a.Cost}}
	if err == nil {
		ids := make([]store.Identity, 0, len(tried.Set.Keys))
		tried.Ask.Identities, err = g.read(ids, r, &rd.own, tried.Set, own)
	}
	if err == nil {
		tried.Ask.Costs, err = g.costsOf(r, c, tried.Set, set, a)
	}
	if err == nil {
		return tried
	}
	if !errors.Is(err, keys.ErrNoKey) && !errors.Is(err, ErrNeedsRequest) {
		g.Engine.ShadowFailed(r.Context(), g.Engine.Policy(), err)
	}
	return nil
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
	Asked

	Costs map[string]int // by the name of the unit; units that it does not name cost Rest
	Named bool           // Costs counts, even if it is nil
	Rest  int
	Waits bool // until it is admitted
}

// Sets returns the set of limits for a call without a request.
func (g *Gate) Sets(ctx context.Context) (set *engine.Set, err error) {
	if set = g.Policy.Set; set == nil {
		set, err = g.chosen(ctx)
	}
	return set, err
}

func (g *Gate) chosen(ctx context.Context) (*engine.Set, error) {
	r := NoRequest{ctx}
	rd := newReading(g, r)
	defer rd.free()
	return g.Policy.of(g, r, rd)
}

// ErrNeedsRequest is why limits cannot be chosen for a call without a request.
var ErrNeedsRequest = errors.New("sash: LimitBy takes a request, but this call has none")

// Call decides about a call without a request.
func (g *Gate) Call(ctx context.Context, set *engine.Set, c *Call, res *engine.Result) error {
	var ask engine.Ask // field by field, as otherwise it is made elsewhere and copied, for which the processor waits
	ask.Identities, ask.Cost, ask.Mode = c.Own[:], c.Cost, c.Mode
	if c.Named {
		if err := g.costs(nil, c, set, &ask); err != nil {
			return err
		}
	}
	if g.Shadow != nil || !set.IsOwn() {
		r := NoRequest{ctx}
		rd := newReading(g, r)
		err := g.identities(r, rd, c, set, &ask)
		if rd.free(); err != nil { // before it may wait
			return err
		}
	}
	if c.Waits {
		return ownCost(g.Engine.Wait(ctx, set, &ask, res))
	}
	return ownCost(g.Engine.Decide(ctx, set, &ask, res))
}
