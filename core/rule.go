package core

// This file is for package rules, which limits requests by rules of a file. Applications use that.

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/sashlimit/sash/core/adapter"
	"github.com/sashlimit/sash/core/event"
	"github.com/sashlimit/sash/core/internal/guard"
	"github.com/sashlimit/sash/core/internal/plan"
	"github.com/sashlimit/sash/core/store"
)

// Rule is the limits of a rule, or of a part of it that applies by itself.
type Rule struct {
	Policy  string  // Decision.Policy
	Name    string  // of its logs, as that of WithName; Rules of one name have different Labels
	Label   string  // ends the names of its logs: of [a-z0-9._-], or empty
	Prefix  string  // begins the names of limits that have none
	Key     Key     // of limits that have none
	Limits  Limits  // to which By gives other keys
	Shadow  bool    // asked and reported, but never denies
	Failure Failure // while the store does not answer; of several Rules the strictest
	Detail  string  // of the problem document of a denial, or empty for the usual one
}

// Prepared is a [Rule] that a limiter can ask.
type Prepared struct {
	plan.Part // the limits of the rule, with their logs

	failure Failure
	alone   *plan.Plan // for requests to which no other rule applies
	with    *combinations
}

// combinations are the plans of rules that were prepared together.
type combinations struct {
	mu    sync.RWMutex
	plans map[[store.MaxLimits]*Prepared]*plan.Plan
}

// maxCombinations is how many plans are kept. Further ones are made for each request.
const maxCombinations = 4096

// NewRules makes a limiter that asks the rules which choose adds to a [Choice]; a request to which none is added passes
// uncounted. An error refuses the request. Options that a rule has a field for are errors. The limiter is for requests
// only: [Limiter.Allow] and other methods that name a key return errors.
func NewRules(name string, choose func(adapter.Request, *Choice) error, opts ...Option) (*Limiter, error) {
	opts = append(slices.Clone(opts), WithName(name), ruleOptions)
	l, err := build(chosenByRules{}, Global(), opts)
	if err != nil {
		return nil, err
	}
	l.choose, l.rereads = choose, true
	l.ruleSpaces, l.variants = new(sync.Map), new(variants)
	if l.guard == nil {
		l.variants = &variants{l, l, l}
		return l, nil
	}
	c := configure(opts)
	for f := range l.variants {
		own := *l
		if Failure(f) != FailLocal {
			c.guard.Store, c.guard.Policy = l.store, name
			c.guard.Failure, c.guard.Label = guardFailure[f], Failure(f).String()
			own.guard = guard.New(c.guard)
			own.slots = own.guard.NewSlots()
			own.slots.Freed = own.wake
		}
		l.variants[f] = &own
	}
	return l, nil
}

// chosenByRules is the policy of a limiter with rules.
type chosenByRules struct{}

func (chosenByRules) compile() (*policy, error) {
	return &policy{name: "rules", choose: func(adapter.Request) Limits { return nil }}, nil
}

// ruleOptions is an option that checks those before it.
func ruleOptions(c *config) {
	for option, instead := range map[string]string{
		"WithShadow": "shadow: true in a rule", "WithBan": "a deny list, or a limit over a longer window",
		"WithFailure": "failure in a rule", "WithCost": "cost in a rule",
	} {
		if slices.Contains(c.given, option) {
			c.fault(option, "rules", "the file of rules has its own setting", "use "+instead)
		}
	}
}

const (
	tooLate     = "the limiter is made already"
	passEarlier = "pass it to New, or to rules.WithOptions"
)

// Answering returns a limiter that decides as l does, with the same logs, and answers in another way. The options are
// WithDeny and WithError of an adapter, and [WithHeaders].
func (l *Limiter) Answering(opts ...Option) (*Limiter, error) {
	c := configure(opts)
	for _, option := range c.given {
		if !slices.Contains([]string{"WithDeny", "WithError", "WithHeaders"}, option) {
			c.fault(option, "too late", tooLate, passEarlier)
		}
	}
	if len(c.lists) > 0 || len(c.observers) > 0 || c.guard.StoreCalls != nil {
		c.fault("lists and observers", "too late", tooLate, passEarlier)
	}
	answer := func(l *Limiter) *Limiter {
		own := *l
		if slices.Contains(c.given, "WithHeaders") {
			own.draft, own.legacy = c.draft, c.legacy
		}
		if c.deny != nil {
			own.deny = c.deny
		}
		if c.fail != nil {
			own.fail = c.fail
		}
		own.callbackTypes = slices.Concat(l.callbackTypes, c.callbackTypes)
		return &own
	}
	own := answer(l)
	if l.variants != nil {
		own.variants = new(variants)
		for f, v := range l.variants {
			own.variants[f] = answer(v)
		}
	}
	return own, errors.Join(c.faults...)
}

// Prepare checks rules and makes them ready. A [Choice] is of rules that were prepared together. Rules with the names
// and labels of others that this limiter has prepared before have the same logs. The errors are those of each rule, in
// the same order.
func (l *Limiter) Prepare(rules []Rule) ([]*Prepared, []error) {
	prepared, faults := make([]*Prepared, len(rules)), make([]error, len(rules))
	with := &combinations{plans: make(map[[store.MaxLimits]*Prepared]*plan.Plan)}
	for i := range rules {
		prepared[i], faults[i] = l.prepare(&rules[i], with)
	}
	return prepared, faults
}

// Joins returns nil if the store can decide about rules together, and otherwise why not.
func (l *Limiter) Joins() error { return unjoint(l.store) }

func (l *Limiter) prepare(r *Rule, with *combinations) (*Prepared, error) {
	if r.Key.keySpec == nil {
		r.Key = Global() // of no limit, or it is a mistake that split finds
	}
	limits := r.Limits.clone()
	for i := range limits {
		limits[i].prefix = r.Prefix
	}
	pl, err := newPlan(limits, "limits")
	if err = errors.Join(err, r.Key.fault); err != nil {
		return nil, err
	}
	err = errors.Join(append(l.policy.unfit(pl), validateLimits(pl.Limits, l.store.Validate))...)
	if r.Shadow && pl.Counter != SlidingLog {
		err = errors.Join(err, plan.ShadowError(pl.Counter))
	}
	if err != nil {
		return nil, err
	}
	spaces := *l.policy.spaces
	spaces.NamedSpaces, spaces.OwnKey, spaces.Label = l.names(r.Name, spaces.Secret), r.Key.keySpec, r.Label
	if err := spaces.Split(pl); err != nil {
		return nil, err
	}
	if r.Shadow {
		for _, log := range pl.Logs {
			log.Shadow = len(log.Limits)
		}
	}
	p := &Prepared{
		Part:    plan.Part{Plan: pl, Rule: &plan.Rule{Policy: r.Policy, Detail: r.Detail}, Shadow: r.Shadow},
		failure: r.Failure, with: with,
	}
	p.alone, err = l.combine([]*Prepared{p})
	return p, err
}

// names returns the spaces of rules with a name.
func (l *Limiter) names(name string, secret []byte) *plan.NamedSpaces {
	known, ok := l.ruleSpaces.Load(name)
	if !ok {
		known, _ = l.ruleSpaces.LoadOrStore(name, plan.NewNamedSpaces(name, secret))
	}
	return known.(*plan.NamedSpaces) //nolint:forcetypeassert // nothing else is stored
}

// Alone returns a rule of only one of its limits, to ask about that limit.
func (p *Prepared) Alone(limit int) *Prepared {
	own := &Prepared{Part: plan.Part{Plan: p.Only(limit), Rule: p.Rule}, failure: p.failure, with: new(combinations)}
	own.alone = plan.Combine([]*plan.Part{&own.Part})
	return own
}

// combine makes one plan of those of several rules.
func (l *Limiter) combine(rules []*Prepared) (*plan.Plan, error) {
	parts, limits := make([]*plan.Part, len(rules)), 0
	for i, p := range rules {
		parts[i], limits = &p.Part, limits+len(p.Limits)
	}
	if limits > maxLimits {
		return nil, tooManyLimits(rules)
	}
	pl := plan.Combine(parts)
	if err := unjoint(l.store); err != nil && len(pl.Logs) > 1 {
		return nil, err
	}
	return pl, nil
}

func tooManyLimits(rules []*Prepared) error {
	names := make([]string, len(rules))
	for i, p := range rules {
		names[i] = p.Rule.Policy
	}
	return &ConfigError{
		Option: "rules", Value: "request",
		Problem: fmt.Sprintf("these rules apply to one request, and have more than %d limits together: %s", maxLimits,
			strings.Join(names, ", ")),
		Remedy: "remove limits, or narrow the matches of these rules",
	}
}

// Labelled returns a copy of k that ends the names of logs with label: of [a-z0-9._-].
func (k Key) Labelled(label string) Key {
	own := *k.keySpec
	own.label = label
	return Key{&own}
}

// DefaultName returns the name that a limit has if it is given none.
func (l Limit) DefaultName() string { return l.defaultName() }

// Reloaded tells the observers that the rules have changed, or why they have not.
func (l *Limiter) Reloaded(ctx context.Context, err error) {
	outcome := event.Reloaded
	if err != nil {
		outcome = event.ReloadFailed
	}
	e := l.event(outcome, new(Decision), err)
	l.refusals.logPanic(ctx, causeHandler, "sash: an observer has panicked when rules were reloaded", "correct it",
		l.observe(ctx, &e))
}

// Err returns what is wrong with a key, which [New] would report.
func (k Key) Err() error {
	if k.keySpec == nil {
		return &ConfigError{Option: "key", Value: "none", Problem: zeroKey, Remedy: makeKey}
	}
	return k.fault
}

// RuleSet is a *rules.Set of package rules, which adapters do not depend on.
type RuleSet interface {
	Limiter(opts ...Option) (*Limiter, error)
}

// Explainer is a *rules.Set of package rules. E is rules.Explanation.
type Explainer[E any] interface {
	Explain(r adapter.Request) E
}
