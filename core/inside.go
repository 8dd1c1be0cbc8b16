package core

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/sashlimit/sash/core/adapter"
	"github.com/sashlimit/sash/core/event"
	"github.com/sashlimit/sash/core/internal/engine"
	"github.com/sashlimit/sash/core/internal/gate"
	"github.com/sashlimit/sash/core/internal/keys"
)

// inside is what packages rules, dashboard and the exporters reach of a limiter.
type inside struct{ *Limiter }

// Inside is for packages of this module.
func (l *Limiter) Inside() inside { return inside{l} } //nolint:revive // users are not to name the type

// Engine returns what decides.
func (l inside) Engine() *engine.Engine { return l.engine }

// Gate returns what reads requests.
func (l inside) Gate() *gate.Gate { return &l.gate }

// SetRules tells the limiter which rules are in force, for overrides of their keys.
func (l inside) SetRules(inForce func() []*engine.Rule) { l.rules = inForce }

// Answering returns a limiter that decides as this one does, with the same logs, and answers in another way. The
// options are WithDeny and WithError of an adapter, WithHeaders and WithHeadersFunc.
func (l inside) Answering(opts []Option) (*Limiter, error) {
	c := configure(l.answers, opts)
	c.refuseInRules()
	const passEarlier = "pass it to New, or to rules.WithOptions" //nolint:gosec // it has no password
	for _, option := range c.given {
		c.faults.add(option.inRules == "" && !option.answers, option.name, "too late", "the limiter already exists",
			passEarlier)
	}
	late := len(c.gate.Lists) > 0 || len(c.gate.observers) > 0 || c.Guard.StoreCalls != nil
	c.faults.add(late, "lists and observers", "too late", "the limiter already exists", passEarlier)
	own := *l.Limiter // what has locks is shared by pointer
	own.answers = c.answers
	return &own, c.faults.err()
}

// ByText returns a limiter that decides as this one does, with the same logs, about the identities that texts name,
// whatever its own key is.
func (l inside) ByText() *Limiter {
	own := *l.Limiter // what has locks is shared by pointer
	own.gate.Key = keys.ByText()
	return &own
}

// Preview returns what would be decided about a request if choose added the rules, and takes nothing. Observers get no
// event.
func (l inside) Preview(r adapter.Request, choose func(adapter.Request, *gate.Choice) error) (d Decision, err error) {
	err = adapter.Guard(func() error { return l.gate.Preview(r, choose, &d.result) })
	if err != nil {
		return Decision{}, err
	}
	if d.limiter, d.Allowed = l.Limiter, true; d.result.Set != nil || d.result.Shadow != nil {
		l.decide(&d)
	}
	d.result.Keep()
	return d, nil
}

// Exempt reports whether a list or WithSkip of the limiter passes a request before any rule is asked. If a deny list
// names the client, the error is ErrForbidden.
func (l inside) Exempt(r adapter.Request) (passes bool, err error) {
	err = adapter.Guard(func() (err error) {
		passes, err = l.gate.Exempt(r)
		return err
	})
	return passes, err
}

// Reloaded reports to the observers that the rules have changed, or why they have not.
func (l inside) Reloaded(ctx context.Context, err error) {
	outcome := event.Reloaded
	if err != nil {
		outcome = event.ReloadFailed
	}
	e := l.event(outcome, new(gate.Asked), err)
	l.observe(ctx, &e)
}

// Policy returns the name of the policy, or an empty text if there is no limiter.
func (l inside) Policy() string {
	if l.Limiter == nil || l.engine == nil {
		return ""
	}
	return l.policy()
}

// IsClosed reports whether Close was called.
func (l inside) IsClosed() bool { return l.closed.Load() }

// Limits returns the limits as users write them: none if a file has them.
func (l inside) Limits() string { return l.limitsText() }

// Inside is for packages of this module: what the engine has found.
func (d *Decision) Inside() *engine.Result { return &d.result }

// OverrideKeys returns the keys that overrides can be of. Without WithOverrides there are none.
func (l inside) OverrideKeys() []*engine.OverrideKey {
	switch {
	case !l.engine.HasOverrides():
		return nil
	case l.gate.Rules != nil:
		var sets []*engine.Set
		for _, r := range l.rules() {
			sets = append(sets, r.Set())
		}
		return l.engine.OverrideKeys(sets...)
	case l.gate.Policy.Set != nil:
		return l.engine.OverrideKeys(l.gate.Policy.Set)
	}
	return []*engine.OverrideKey{l.engine.OverrideKeyOf(nil)}
}

// LookUp returns the decision about a key that a text names, for a page: nothing is taken.
func (l inside) LookUp(ctx context.Context, key string) (d Decision, err error) {
	if l.gate.Rules == nil && l.gate.Policy.Set == nil {
		return d, configError("Look up", "LimitBy",
			"the limits are not known here, because each request chooses its own",
			"choose the key among those with the most requests")
	}
	d, err = l.Peek(ctx, key)
	if config := (*ConfigError)(nil); errors.As(err, &config) {
		err = configError("Look up", config.Value, config.Problem,
			"choose the key among those with the most requests: no text names it")
	}
	return d, err
}

// OverrideNamed is Override for a key with one of the names that OverrideKeys have.
func (l inside) OverrideNamed(ctx context.Context, name, key string, o Override) error {
	k, id, err := l.overrideNamed("Override", name, key)
	if err != nil {
		return err
	}
	if o.By.spec != nil {
		return configError("Override", o.By.spec.Name, "keys of rules are not those of the program",
			`leave By out, and name a limit of the rule, as in "rule/limit"`)
	}
	return l.engine.SetOverride(ctx, k, id, key, o.inner())
}

// RemoveOverrideNamed ends such an override.
func (l inside) RemoveOverrideNamed(ctx context.Context, name, key string) error {
	k, id, err := l.overrideNamed("RemoveOverride", name, key)
	if err != nil {
		return err
	}
	return l.engine.RemoveOverride(ctx, k, id)
}

// overrideNamed finds the key of a kind with a name, and the identity that a text names.
func (l inside) overrideNamed(call, name, text string) (named *engine.OverrideKey, id identity, err error) {
	if err = l.engine.LacksOverrides(call); err != nil {
		return nil, id, err
	}
	policy, limit, _ := strings.Cut(name, "/")
	var names []string // of the keys of the policy or the rule
	for _, k := range l.OverrideKeys() {
		if k.Rule().Policy == policy {
			names = append(names, k.Name)
			isNamed := func(l *engine.Limit) bool { return l.Name == limit }
			if k.Name == name || slices.ContainsFunc(k.Limits, isNamed) {
				named = k
			}
		}
	}
	if named != nil {
		err = named.Spec.Identify(&id, call, text, &l.gate.Prefixes)
		return named, id, err
	}
	problem, remedy := "no limits of this name deny", "use the name of a policy or a rule that is not in shadow"
	if names != nil {
		problem, remedy = "it does not name one kind of key", "use one of "+strings.Join(names, ", ")
	}
	return nil, id, configError(call, name, problem, remedy)
}
