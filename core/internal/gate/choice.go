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

// Choice is what is read of a request that chooses its rules or its limits, or that reads keys more than once: each is
// read once.
type Choice struct {
	CountDenied bool // denials are recorded, as with WithCountDenied
	Listed      bool // the request passes because of an allow list; used if no rule is added

	// Ambiguous says that the request's path can be read in several ways. If the rules of all of them cannot be decided
	// together, the request is refused (400), since clients choose how a path is spelled. Those in shadow are left out.
	Ambiguous bool

	gate      *Gate
	request   adapter.Request
	own, full keys.Prefixes // of the gate, and of lists
	memo      keys.Memo
	limits    []engine.Given // that were chosen
	rules     []Applied
	failed    []Failure

	identities []store.Identity // of what rules ask
	costs      []int
}

var choices = sync.Pool{New: func() any { return new(Choice) }}

func newChoice(g *Gate, r adapter.Request) *Choice {
	c := choices.Get().(*Choice) //nolint:forcetypeassert // nothing else is in the pool
	c.gate, c.request, c.own, c.full = g, r, g.Prefixes, keys.Full
	c.own.Memo, c.full.Memo = &c.memo, &c.memo
	return c
}

func (c *Choice) free() {
	c.memo.Clear()
	clear(c.limits[:cap(c.limits)])
	clear(c.rules)
	clear(c.identities[:cap(c.identities)])
	*c = Choice{
		memo: c.memo, limits: c.limits[:0], rules: c.rules[:0], identities: c.identities[:0], costs: c.costs[:0],
	}
	choices.Put(c)
}

// shadow returns what a request, or a call, asks the limits that are tried out, with the keys and costs that were
// read. It returns nil if that cannot be read, since what is wrong with the shadow does not affect the decision.
func (c *Choice) shadow(call *Call, inForce *engine.Set, a *engine.Ask, own []store.Identity) *engine.Trial {
	g, r := c.gate, c.request
	set, err := g.Shadow.of(c)
	tried := &engine.Trial{Set: set, Ask: engine.Ask{Cost: a.Cost}}
	if err == nil {
		tried.Ask.Identities, err = g.read(make([]store.Identity, 0, len(set.Keys)), r, &c.own, set, own)
	}
	if err == nil {
		tried.Ask.Costs, err = g.costsOf(r, call, set, inForce, a)
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
	c := newChoice(g, NoRequest{ctx})
	defer c.free()
	return g.Policy.of(c)
}

// ErrNeedsRequest is why limits cannot be chosen for a call without a request.
var ErrNeedsRequest = errors.New("sash: LimitBy takes a request, but this call has none")

// Call decides about a call without a request.
func (g *Gate) Call(ctx context.Context, set *engine.Set, c *Call, res *engine.Result) error {
	var ask engine.Ask // field by field, as otherwise it is made elsewhere and copied, for which the processor waits
	ask.Identities, ask.Cost, ask.Mode, ask.Waits = c.Own[:], c.Cost, c.Mode, c.Waits
	if c.Named {
		if err := g.costs(nil, c, set, &ask); err != nil {
			return err
		}
	}
	if g.Shadow != nil || !set.IsOwn() {
		r := NoRequest{ctx}
		chosen := newChoice(g, r)
		err := g.identities(r, chosen, c, set, &ask)
		if chosen.free(); err != nil { // before it may wait
			return err
		}
	}
	return ownCost(g.Engine.Decide(ctx, set, &ask, res))
}
