package core

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/sashlimit/sash/core/internal/engine"
	"github.com/sashlimit/sash/core/internal/gate"
	"github.com/sashlimit/sash/core/internal/keys"
	"github.com/sashlimit/sash/core/internal/limittext"
	"github.com/sashlimit/sash/core/internal/sharing"
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
	c := configure(answers{}, opts)
	given := c.written("policy", p)
	key := k.spec
	if key == nil {
		c.fault("key", "none", zeroKey, "pass a key, such as core.ByIP() or core.Global()")
		key = new(keys.Spec)
	}
	c.faults = append(c.faults, key.Fault)
	if given.Rules != nil {
		c.refuseInRules()
		c.Guard.Failure = given.Failure
		c.Guard.Label = Failure(given.Failure).String()
	}
	c.faults.add(c.Spread != nil && c.gate.Mode == store.ModeChargeDenied, "WithSpread", "with WithCountDenied",
		"each request that is denied prolongs the wait, so there are no instants to hand out", "leave one of them out")
	named := c.Policy != ""
	c.Policy = cmp.Or(c.Policy, given.Name)
	l := c.limiter(key)
	l.gate.Rules = given.Rules
	c.addPolicy(l, &given)
	c.addShadow(l)
	c.checkCosts(l)
	l.callbacks = slices.Concat(given.Callbacks, key.Callbacks, l.callbacks)
	l.gate.Rereads = c.rereads(l, key)
	err := c.faults.err()
	if err == nil && c.shared {
		l.unshare = limiters.Add(c.gate.store, sharing.Limiter{Name: c.Policy, Limits: given.Name, Named: named})
	}
	return l, err
}

// limiters are those of this process on stores that others may use.
var limiters sharing.Registry

// limiter makes a limiter of the settings, without limits.
func (c *config) limiter(k *keys.Spec) *Limiter {
	if c.gate.store == nil {
		c.gate.store = NewMemoryStore()
	}
	c.lacks()
	l := &Limiter{answers: c.answers, gate: c.gate.Gate, shared: c.gate.shared}
	l.gate.Key, l.keeps = k, k.Keeps()
	l.gate.Prefixes.Warnings = &keys.Warnings{Policy: c.Policy}
	c.Key, c.ShadowFailed, c.Guard.Store = k, l.shadowFailed, c.gate.store
	if own, ok := c.gate.store.(*MemoryStore); ok && own.logs != nil {
		c.faults = append(c.faults, own.Validate())
		c.Memory, c.Overrider = own.logs, own
	}
	var err error
	l.engine, err = engine.New(c.Config)
	c.faults = append(c.faults, err)
	l.gate.Engine = l.engine
	return l
}

// written returns a policy as it was written. It returns one even if there are mistakes.
func (c *config) written(option string, p Policy) (w gate.Written) {
	if keys.IsNil(p) {
		c.fault(option, "nil", "there is no policy", "pass one, such as core.PerMinute(100)")
		return w
	}
	w, err := p.Written()
	c.faults = append(c.faults, err)
	return w
}

// addPolicy compiles the limits that do not depend on requests.
func (c *config) addPolicy(l *Limiter, given *gate.Written) {
	if given.Limits == nil {
		l.gate.Policy.Choose = given.Choose
		return
	}
	set, err := l.engine.Compile(given.Limits, false)
	c.faults = append(c.faults, err)
	l.gate.Policy.Set = set
	c.checkAlgorithms(set)
}

// checkAlgorithms reports options that suit none of the limits. Where they suit some, they apply to these.
func (c *config) checkAlgorithms(set *engine.Set) {
	suits := func(l engine.Limit) bool { return l.KeepsEntries() && !l.InFlight }
	if len(set.Limits) == 0 || slices.ContainsFunc(set.Limits, suits) {
		return
	}
	algorithm, remedy := set.Limits[0].Algorithm(), "leave the option out, or use a sliding log"
	c.faults.add(c.gate.Mode == store.ModeChargeDenied, "WithCountDenied", algorithm,
		"this algorithm cannot count denials", remedy)
	c.faults.add(c.failLocal && !set.Limits[0].InFlight, "WithFailure(FailLocal)", algorithm,
		"this algorithm keeps counters, not requests, so admissions of an outage cannot be added to the store", remedy)
	c.faults.add(c.Guard.Lease > 0, "WithLease", algorithm, "only units of sliding logs can be taken ahead", remedy)
}

// refuseInRules reports options that a file of rules has fields for.
func (c *config) refuseInRules() {
	for _, option := range c.given {
		c.faults.add(option.inRules != "", option.name, "rules", "the file of rules has its own setting",
			"use "+option.inRules)
	}
}

// checkCosts reports functions for costs that contradict each other, or that are of no limit.
func (c *config) checkCosts(l *Limiter) {
	set := l.gate.Policy.Set
	for _, unit := range slices.Sorted(maps.Keys(c.gate.Costs)) {
		if set != nil {
			c.faults = append(c.faults, Costs{unit: 0}.check("WithCostOf", set, l.gate.Shadow))
		}
		both := c.gate.Cost != nil && (unit == limittext.Requests || set != nil && unit == set.Unit)
		c.faults.add(both, "WithCostOf", unit, "WithCost is of the same unit", "leave one of them out")
	}
	if set != nil && c.gate.Cost != nil {
		c.faults = append(c.faults, set.NoUnnamed("WithCost"))
	}
}

// addShadow compiles the policy of WithShadow.
func (c *config) addShadow(l *Limiter) {
	if c.shadow == nil {
		return
	}
	given, shadow := c.written("WithShadow", c.shadow), new(gate.Policy)
	if shadow.Choose = given.Choose; given.Limits != nil {
		var err error
		shadow.Set, err = l.engine.Compile(given.Limits, true)
		c.faults = append(c.faults, err)
	}
	l.gate.Shadow, l.callbacks = shadow, slices.Concat(given.Callbacks, l.callbacks)
}

// rereads reports whether the limiter's keys have parts in common.
func (c *config) rereads(l *Limiter, own *keys.Spec) bool {
	all := []*keys.Spec{own}
	for _, list := range l.gate.Lists {
		all = append(all, list.Key)
	}
	if l.gate.Policy.Set != nil {
		for _, k := range l.gate.Policy.Set.Keys {
			if k.Spec != own {
				all = append(all, k.Spec)
			}
		}
	}
	l.keeps = l.keeps || l.gate.Rules != nil // its keys may do so
	for _, k := range all {
		l.keeps = l.keeps || k != nil && k.Keeps()
	}
	seen := make(map[*keys.Spec]bool)
	return slices.ContainsFunc(all, func(k *keys.Spec) bool { return k.Repeats(seen) })
}

// lacks reports each option that needs an optional method which the store does not have.
func (c *config) lacks() {
	_, settles := c.gate.store.(store.Settler)
	_, merges := c.gate.store.(store.Merger)
	_, lists := c.gate.store.(store.Lister)
	_, keeps := c.gate.store.(store.Overrider)
	name := fmt.Sprintf("%T", c.gate.store)
	c.faults.add(c.gate.refunds != nil && !settles, "WithRefund", name,
		"this store cannot give units back: it has no method Settle (store.Settler)", otherStore)
	c.faults.add(c.Spread != nil && !lists, "WithSpread", name,
		"this store cannot list a log: it has no method Log (store.Lister)", otherStore)
	c.faults.add(c.Overrides && !keeps, "WithOverrides", name,
		"this store cannot keep overrides: it has no methods SetOverride and Overrides (store.Overrider)", otherStore)
	c.faults.add(c.Guard.Lease > 0 && !settles, "WithLease", name,
		"this store cannot give back what a lease has not used: it has no method Settle (store.Settler)",
		"leave the option out, or use another store, such as redisstore.New(client)")
	c.faults.add(c.failLocal && !(merges && settles), "WithFailure", "FailLocal",
		"admissions of an outage cannot be added to the store "+name+
			": it has no methods Merge and Settle (store.Merger, store.Settler)",
		"choose core.FailOpen or core.FailClosed, or add the methods; a wrapper embeds store.Full")
}
