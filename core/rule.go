package core

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/sashlimit/sash/core/event"
	"github.com/sashlimit/sash/core/internal/bridge"
	"github.com/sashlimit/sash/core/internal/guard"
	"github.com/sashlimit/sash/core/internal/keys"
	"github.com/sashlimit/sash/core/internal/plan"
	"github.com/sashlimit/sash/core/store"
)

// Package rules, which limits requests by rules of a file, calls this file and selection.go through package
// bridge, where these functions are documented.

type rule = bridge.Rule[Key, Limit, Failure]

func newRules(name string, choose bridge.Chooser[Key], opts []Option) (*Limiter, error) {
	named := func(c *config) { c.name = name }
	opts = append(slices.Clone(opts), named, ruleOptions)
	l, err := build(chosenByRules{}, Global(), opts)
	if err != nil {
		return nil, err
	}
	l.choose, l.rereads, l.keeps = choose, true, true
	l.byFailure = new(byFailure)
	c := configure(opts)
	for f := range l.byFailure {
		own := *l
		if l.guard != nil && Failure(f) != FailLocal {
			c.guard.Store, c.guard.Policy, c.guard.Beside = l.store, name, l.guard
			c.guard.Failure, c.guard.Label = guardFailure[f], Failure(f).String()
			own.guard = guard.New(c.guard)
		}
		l.byFailure[f] = &own
	}
	return l, nil
}

// chosenByRules is the policy of a limiter with rules.
type chosenByRules struct{}

func (chosenByRules) compile() (*policy, error) {
	return &policy{name: "rules"}, nil
}

// ruleOptions is an option that checks those before it.
func ruleOptions(c *config) {
	for _, option := range c.given {
		c.faults.add(option.inRules != "", option.name, "rules", ownSetting, "use "+option.inRules)
	}
}

const (
	ownSetting  = "the file of rules has its own setting"
	tooLate     = "the limiter already exists"
	passEarlier = "pass it to New, or to rules.WithOptions" //nolint:gosec // it has no password
)

func (l *Limiter) answering(opts []Option) (*Limiter, error) {
	c := configure(opts)
	ruleOptions(&c)
	for _, option := range c.given {
		c.faults.add(option.inRules == "" && !option.answers, option.name, "too late", tooLate, passEarlier)
	}
	c.faults.add(len(c.lists) > 0 || len(c.observers) > 0 || c.guard.StoreCalls != nil, "lists and observers",
		"too late", tooLate, passEarlier)
	answer := func(l *Limiter) *Limiter {
		own := *l
		if c.headers {
			own.draft, own.legacy = c.draft, c.legacy
		}
		own.deny, own.fail = cmp.Or(c.deny, l.deny), cmp.Or(c.fail, l.fail)
		own.callbacks = slices.Concat(l.callbacks, c.callbacks)
		return &own
	}
	own := answer(l)
	own.byFailure = new(byFailure)
	for f, v := range l.byFailure {
		own.byFailure[f] = answer(v)
	}
	return own, errors.Join(c.faults...)
}

func (l *Limiter) prepareAll(rules []rule) ([]*plan.Part, []error) {
	parts, faults := make([]*plan.Part, len(rules)), make([]error, len(rules))
	with := plan.NewCombinations(l.policy.spaces.Check)
	for i := range rules {
		if parts[i], faults[i] = l.prepare(&rules[i]); faults[i] == nil {
			faults[i] = with.Add(parts[i])
		}
	}
	return parts, faults
}

func (l *Limiter) prepare(r *rule) (*plan.Part, error) {
	if r.Key.spec == nil {
		r.Key = Global() // of no limit, or it is a mistake that split finds
	}
	limits := Limits(r.Limits).clone()
	for i := range limits {
		limits[i].prefix = r.Prefix
	}
	pl, err := newPlan(limits, "limits")
	if err = errors.Join(err, r.Key.spec.Fault); err != nil {
		return nil, err
	}
	if r.Shadow && pl.Counter != store.SlidingLog {
		return nil, plan.ShadowError(pl.Counter)
	}
	spaces := *l.policy.spaces
	spaces.OwnKey, spaces.Label = r.Key.spec, r.Label
	named, _ := l.ruleSpaces.LoadOrStore(r.Name, plan.NewNamedSpaces(r.Name, spaces.Secret))
	spaces.NamedSpaces = named.(*plan.NamedSpaces) //nolint:forcetypeassert // nothing else is stored
	if err := spaces.Split(pl); err != nil {
		return nil, err
	}
	p := &plan.Part{
		Plan: pl, Rule: &plan.Rule{Policy: r.Policy, Detail: r.Detail}, Shadow: r.Shadow, Failure: int(r.Failure),
	}
	for _, log := range pl.Logs {
		if log.Rule = p.Rule; p.Shadow {
			log.Shadow = len(log.Limits)
		}
	}
	return p, nil
}

// joins returns nil if the store can decide over several logs at once, and otherwise why not.
func (l *Limiter) joins() error {
	one := plan.Stored(plan.Limit{Quota: 1, Window: time.Second})
	return l.store.Validate(one, one)
}

func (k Key) labelled(label string) Key {
	own := *k.spec
	own.Label = label
	return Key{&own}
}

func (l *Limiter) reloaded(ctx context.Context, err error) {
	outcome := event.Reloaded
	if err != nil {
		outcome = event.ReloadFailed
	}
	e := l.event(outcome, new(Decision), err)
	l.observe(ctx, &e)
}

func (k Key) err() error {
	if k.spec == nil {
		return configError("key", "none", zeroKey, keys.MakeKey)
	}
	return k.spec.Fault
}

// For adapters: RuleSet is a *rules.Set of package rules, on which adapters do not depend; see [LimiterOf].
type RuleSet interface {
	Limiter(opts ...Option) (*Limiter, error)
}
