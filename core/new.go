package core

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/sashlimit/sash/core/internal/guard"
	"github.com/sashlimit/sash/core/internal/keys"
	"github.com/sashlimit/sash/core/internal/override"
	"github.com/sashlimit/sash/core/internal/plan"
	"github.com/sashlimit/sash/core/internal/setup"
	"github.com/sashlimit/sash/core/internal/slots"
	"github.com/sashlimit/sash/core/store"
)

// New makes a limiter from a policy (how much is allowed), a key (whose quota it is) and options. It does no I/O. The
// error reports all mistakes, each as a [ConfigError].
func New(p Policy, k Key, opts ...Option) (*Limiter, error) {
	l, err := build(p, k, opts)
	if err != nil {
		return nil, err
	}
	return l, nil
}

// build returns a limiter even with an error, so that NewFor can check it for further mistakes.
func build(p Policy, k Key, opts []Option) (*Limiter, error) {
	c := configure(opts)
	compiled := c.compile(p)
	key := k.spec
	if key == nil {
		c.fault("key", "none", zeroKey, "pass a key, such as core.ByIP() or core.Global()")
		key = new(keys.Spec)
	}
	c.faults = append(c.faults, key.Fault)
	if c.store == nil {
		c.store = NewMemoryStore()
	}
	c.addShadow(compiled)
	if compiled.fixed != nil {
		c.checkBan(compiled.fixed.Limits, key)
	}
	c.checkCosts(compiled.fixed)
	c.lacks()
	named := c.name != ""
	c.name = cmp.Or(c.name, compiled.name)
	c.prefixes.Check = &setup.Requests{Policy: c.name}
	l := c.limiter(compiled, key)
	err := errors.Join(c.faults...)
	if err == nil {
		if c.shared {
			l.life.Unshare = limiters.Add(c.store, setup.Limiter{Name: c.name, Limits: compiled.name, Named: named})
		}
	}
	return l, err
}

// limiters are those of this process on stores that others may use.
var limiters setup.Registry

// limiter makes a limiter of the settings.
func (c *config) limiter(compiled *policy, k *keys.Spec) *Limiter {
	compiled.spaces = &plan.Spaces{
		NamedSpaces: plan.NewNamedSpaces(c.name, c.secret), OwnKey: k, Secret: c.secret,
		Varies: compiled.varies(), Named: c.overrides,
		Check: func(p *plan.Plan) error { return errors.Join(c.unfit(p), unservable(c.store, p)) },
	}
	c.faults = append(c.faults, c.unservable(compiled))
	l := &Limiter{
		settings:  c.settings,
		policy:    compiled,
		key:       k,
		namespace: compiled.spaces.Own().Namespace,
		shared:    new(shared),
		keeps:     slices.ContainsFunc(c.keys(compiled, k), (*keys.Spec).Keeps),
		rereads:   c.rereads(compiled, k),
	}
	l.ban = c.ban.ForPolicy(c.name, c.secret)
	l.callbacks = slices.Concat(compiled.callbacks, k.Callbacks, c.callbacks)
	l.lister, _ = c.store.(store.Lister)
	var keeper store.Overrider
	if own, ok := c.store.(*MemoryStore); ok {
		l.memory, keeper = own.logs, own
		l.permits = slots.New(memoryPermits{own.logs})
	} else {
		c.guard.Store, c.guard.Policy = c.store, c.name
		l.guard, l.lease = guard.New(c.guard), c.guard.Lease
		l.permits, keeper = l.guard.Slots, l.guard
	}
	l.permits.Freed = l.wake
	if c.overrides {
		l.overrides = override.New(override.Config[*activeOverride]{
			Policy: c.name, Store: keeper, Parse: parseOverride, Counts: l.hasOverride,
		})
	}
	return l
}

// compile makes p ready for use. It returns a policy even if there are mistakes in p.
func (c *config) compile(p Policy) *policy {
	if keys.IsNil(p) {
		c.fault("policy", "nil", "there is no policy", "pass one, such as core.PerMinute(100)")
		return new(policy)
	}
	compiled, err := p.compile()
	c.faults = append(c.faults, err)
	return compiled
}

// checkCosts reports functions for costs that contradict each other, or that are of no limit.
func (c *config) checkCosts(fixed *plan.Plan) {
	for _, unit := range slices.Sorted(maps.Keys(c.costs)) {
		if fixed != nil {
			c.faults = append(c.faults, Costs{unit: 0}.check("WithCostOf", fixed))
		}
		both := c.cost != nil && (unit == plan.Requests || fixed != nil && unit == fixed.Unit)
		c.faults.add(both, "WithCostOf", unit, "WithCost is of the same unit", "leave one of them out")
	}
	if fixed != nil && c.cost != nil {
		c.faults = append(c.faults, fixed.NoUnnamed("WithCost"))
	}
}

// addShadow compiles the policy of WithShadow and adds it to p, unless p is invalid.
func (c *config) addShadow(p *policy) {
	if c.shadow == nil {
		return
	}
	shadow, err := c.shadow.compile()
	c.faults = append(c.faults, err)
	if err == nil && p.name != "" {
		c.faults = append(c.faults, p.withShadow(shadow))
	}
}

// unservable finds the logs of a policy that has fixed limits. It returns an error if the store or the options cannot
// serve them, or what requests may choose, or if the store cannot decide over the logs of a ban.
func (c *config) unservable(p *policy) error {
	var err error
	if p.fixed == nil {
		err = c.store.Validate()
	} else {
		err = p.spaces.Split(p.fixed)
	}
	if err == nil && c.ban != nil {
		err = cmp.Or(c.store.Validate(c.ban.Tries), c.store.Validate(c.ban.Ladder))
	}
	return err
}

// unfit returns an error for each option that the algorithms of these limits cannot serve.
func (c *config) unfit(p *plan.Plan) error {
	var wrong faults
	all, algorithm := p.All(), p.Counter.String()
	if n := slices.IndexFunc(all, func(l plan.Limit) bool { return l.InFlight || !l.KeepsEntries() }); n >= 0 {
		wrong.add(c.guard.Lease > 0, "WithLease", all[n].Text, "only units of sliding logs can be booked ahead",
			"leave the option out, or give this limit to a limiter of its own")
	}
	if p.Counter != store.SlidingLog {
		const remedy = "leave the option out, or use a sliding log"
		wrong.add(c.refunds != nil, "WithRefund", algorithm,
			"this algorithm keeps counters, not requests, so no request can be taken back", remedy)
		wrong.add(c.mode == store.ModeChargeDenied, "WithCountDenied", algorithm,
			"this algorithm cannot count denials", remedy)
		wrong.add(c.failLocal, "WithFailure(FailLocal)", algorithm,
			"this algorithm keeps counters, not requests, so admissions of an outage cannot be added to the store",
			remedy)
	}
	return errors.Join(wrong...)
}

// lacks reports each option that needs an optional method which the store does not have.
func (c *config) lacks() {
	_, settles := c.store.(store.Settler)
	_, merges := c.store.(store.Merger)
	_, keeps := c.store.(store.Overrider)
	_, leases := c.store.(store.Leaser)
	name := fmt.Sprintf("%T", c.store)
	c.faults.add(c.refunds != nil && !settles, "WithRefund", name,
		"this store cannot give units back: it has no method Settle (store.Settler)", otherStore)
	c.faults.add(c.overrides && !keeps, "WithOverrides", name,
		"this store cannot keep overrides: it has no methods SetOverride and Overrides (store.Overrider)", otherStore)
	c.faults.add(c.guard.Lease > 0 && !leases, "WithLease", name,
		"this store cannot book units ahead: it has no method Book (store.Leaser)",
		"leave the option out, or use another store, such as redisstore.New(client)")
	c.faults.add(c.failLocal && !(merges && settles), "WithFailure", "FailLocal",
		"admissions of an outage cannot be added to the store "+name+
			": it has no methods Merge and Settle (store.Merger, store.Settler)",
		"choose core.FailOpen or core.FailClosed, or add the methods; a wrapper embeds store.Full")
}
