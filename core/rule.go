package core

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sashlimit/sash/core/adapter"
	"github.com/sashlimit/sash/core/event"
	"github.com/sashlimit/sash/core/internal/bridge"
	"github.com/sashlimit/sash/core/internal/guard"
	"github.com/sashlimit/sash/core/internal/plan"
	"github.com/sashlimit/sash/core/store"
)

// Package rules, which limits requests by rules of a file, calls this file and selection.go through package
// bridge, where these functions are documented.

type rule = bridge.Rule[Key, Limit, Failure]

// prepared is a rule that a limiter can ask.
type prepared struct {
	plan.Part // the limits of the rule, with their logs

	failure Failure
	single  *plan.Plan // for requests to which no other rule applies
	with    *combinations
}

// combinations are the plans of rules that were prepared together.
type combinations struct {
	mu    sync.RWMutex
	plans map[combination]*plan.Plan
}

// combination has the rules that apply to a request, and then nil. Each has a limit, so there are no more of them.
type combination [store.MaxLimits]*prepared

// maxCombinations is how many plans are kept. Further ones are made for each request.
const maxCombinations = 4096

func newRules(name string, choose bridge.Chooser[Key], opts []Option) (*Limiter, error) {
	opts = append(slices.Clone(opts), WithName(name), ruleOptions)
	l, err := build(chosenByRules{}, Global(), opts)
	if err != nil {
		return nil, err
	}
	l.choose, l.rereads, l.keeps = choose, true, true
	l.byFailure = new(byFailure)
	if l.guard == nil {
		l.byFailure = &byFailure{l, l, l}
		return l, nil
	}
	c := configure(opts)
	for f := range l.byFailure {
		own := *l
		if Failure(f) != FailLocal {
			c.guard.Store, c.guard.Policy = l.store, name
			c.guard.Failure, c.guard.Label = guardFailure[f], Failure(f).String()
			own.guard = guard.New(c.guard)
			own.permits = own.guard.Slots
			own.permits.Freed = own.wake
		}
		l.byFailure[f] = &own
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
	for _, option := range c.given {
		if option.inRules != "" {
			c.fault(option.name, "rules", "the file of rules has its own setting", "use "+option.inRules)
		}
	}
}

const (
	tooLate     = "the limiter already exists"
	passEarlier = "pass it to New, or to rules.WithOptions" //nolint:gosec // it has no password
)

func (l *Limiter) answering(opts []Option) (*Limiter, error) {
	c := configure(opts)
	for _, option := range c.given {
		if !option.answers {
			c.fault(option.name, "too late", tooLate, passEarlier)
		}
	}
	if len(c.lists) > 0 || len(c.observers) > 0 || c.guard.StoreCalls != nil {
		c.fault("lists and observers", "too late", tooLate, passEarlier)
	}
	answer := func(l *Limiter) *Limiter {
		own := *l
		if c.headers {
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
	own.byFailure = new(byFailure)
	for f, v := range l.byFailure {
		own.byFailure[f] = answer(v)
	}
	return own, errors.Join(c.faults...)
}

func (l *Limiter) prepareAll(rules []rule) ([]bridge.Prepared, []error) {
	ready, faults := make([]bridge.Prepared, len(rules)), make([]error, len(rules))
	with := &combinations{plans: make(map[combination]*plan.Plan)}
	for i := range rules {
		p, err := l.prepare(&rules[i], with)
		if faults[i] = err; err == nil {
			ready[i] = p
		}
	}
	return ready, faults
}

func (l *Limiter) prepare(r *rule, with *combinations) (*prepared, error) {
	if r.Key.keySpec == nil {
		r.Key = Global() // of no limit, or it is a mistake that split finds
	}
	limits := Limits(r.Limits).clone()
	for i := range limits {
		limits[i].prefix = r.Prefix
	}
	pl, err := newPlan(limits, "limits")
	if err = errors.Join(err, r.Key.fault); err != nil {
		return nil, err
	}
	err = errors.Join(l.policy.unfit(pl)...)
	if r.Shadow && pl.Counter != store.SlidingLog {
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
	p := &prepared{
		Part:    plan.Part{Plan: pl, Rule: &plan.Rule{Policy: r.Policy, Detail: r.Detail}, Shadow: r.Shadow},
		failure: r.Failure, with: with,
	}
	p.single, err = l.combine([]*prepared{p})
	return p, err
}

func (l *Limiter) setInForce(rules func() []bridge.Named) {
	l.inForce = func() (all []plan.Named) {
		for _, rule := range rules() {
			of := plan.Named{Name: rule.Name}
			for _, part := range rule.Parts {
				of.Plans = append(of.Plans, part.(*prepared).single) //nolint:forcetypeassert // there are no others
			}
			all = append(all, of)
		}
		return all
	}
}

// names returns the spaces of rules with a name.
func (l *Limiter) names(name string, secret []byte) *plan.NamedSpaces {
	spaces, ok := l.ruleSpaces.Load(name)
	if !ok {
		spaces, _ = l.ruleSpaces.LoadOrStore(name, plan.NewNamedSpaces(name, secret))
	}
	return spaces.(*plan.NamedSpaces) //nolint:forcetypeassert // nothing else is stored
}

// Alone returns a rule of only one of its limits, to ask about that limit.
func (p *prepared) Alone(limit int) bridge.Prepared {
	own := &prepared{Part: plan.Part{Plan: p.Only(limit), Rule: p.Rule}, failure: p.failure, with: new(combinations)}
	if p.Shadow {
		own.Logs[0].KeySpace = nil // overrides are not of it
	}
	own.single = plan.Combine([]*plan.Part{&own.Part})
	return own
}

// combine makes one plan of those of several rules.
func (l *Limiter) combine(rules []*prepared) (*plan.Plan, error) {
	parts, limits := make([]*plan.Part, len(rules)), 0
	for i, p := range rules {
		parts[i], limits = &p.Part, limits+len(p.Limits)
	}
	if limits > maxLimits {
		return nil, tooManyLimits(rules)
	}
	pl := plan.Combine(parts)
	if len(pl.Logs) > 1 {
		if err := unservable(l.store, pl); err != nil {
			return nil, &bridge.RulesError{Err: err}
		}
	}
	return pl, nil
}

// joins returns nil if the store can decide over several logs at once, and otherwise why not.
func (l *Limiter) joins() error {
	one := plan.Stored(plan.Limit{Quota: 1, Window: time.Second})
	return l.store.Validate(one, one)
}

func tooManyLimits(rules []*prepared) error {
	names := make([]string, len(rules))
	for i, p := range rules {
		names[i] = p.Rule.Policy
	}
	return &bridge.RulesError{Err: configError("rules", "request",
		fmt.Sprintf("these rules apply to one request, and have more than %d limits together: %s", maxLimits,
			strings.Join(names, ", ")), "remove limits, or narrow the matches of these rules")}
}

func (k Key) labelled(label string) Key {
	own := *k.keySpec
	own.label = label
	return Key{&own}
}

func (l *Limiter) reloaded(ctx context.Context, err error) {
	outcome := event.Reloaded
	if err != nil {
		outcome = event.ReloadFailed
	}
	e := l.event(outcome, new(Decision), err)
	l.refusals.logPanic(ctx, causeHandler, "sash: an observer has panicked when rules were reloaded", "correct it",
		l.observe(ctx, &e))
}

func (k Key) err() error {
	if k.keySpec == nil {
		return configError("key", "none", zeroKey, makeKey)
	}
	return k.fault
}

// For adapters: RuleSet is a *rules.Set of package rules, on which adapters do not depend; see [LimiterOf].
type RuleSet interface {
	Limiter(opts ...Option) (*Limiter, error)
}
