package core

// This file is for packages that adapt a framework or make keys. Package adapter cannot hold it, because it builds an
// Option or a Key or binds a Limiter.

import (
	"context"
	"errors"
	"fmt"
	"reflect"

	"github.com/sashlimit/sash/core/adapter"
	"github.com/sashlimit/sash/core/internal/gate"
	"github.com/sashlimit/sash/core/internal/keys"
)

// For adapters: NewFor is [New] for an adapter whose requests are of type C. It also reports callbacks that were
// written for another framework.
func NewFor[C any](p Policy, k Key, opts ...Option) (*Limiter, error) {
	l, err := build(p, k, opts)
	if err := errors.Join(err, serves[C](l)); err != nil {
		return nil, err
	}
	return l, nil
}

// For adapters: Bind prepares a limiter for an adapter whose requests are of type C. It checks that callbacks take a C,
// and returns the handlers for denials and errors: those given, unless the user has set others; see [OnDeny].
func Bind[C, Deny, Fail any](l *Limiter, deny Deny, fail Fail) (Deny, Fail, error) {
	if l == nil || l.engine == nil {
		return deny, fail, configError("From", "nil", noLimiter, checkNew)
	}
	if err := serves[C](l); err != nil {
		return deny, fail, err
	}
	if h, ok := l.deny.(Deny); ok {
		deny = h
	}
	if h, ok := l.fail.(Fail); ok {
		fail = h
	}
	return deny, fail, nil
}

// For adapters: LimiterOf returns the limiter of a set for Rules of an adapter. It panics on a wrong option, and if set
// is nil, for example because the error of rules.Load was not checked.
func LimiterOf(set RuleSet, opts ...Option) *Limiter {
	if keys.IsNil(set) {
		err := configError("Rules", "nil", "the set of rules is nil", "check the error of rules.Load")
		panic(err) //nolint:forbidigo // documented: a mistake of the program
	}
	return adapter.Must(set.Limiter(opts...))
}

// For adapters: OnDeny makes the option WithDeny of an adapter. The handler answers denied requests in the framework's
// own way. C is the framework's type of a request.
func OnDeny[C, Deny any](handler Deny) Option {
	return calling[C](given{name: "WithDeny", answers: true}, keys.IsNil(handler), func(c *config) {
		c.deny = handler
	})
}

// For adapters: OnError makes the option WithError of an adapter. The handler answers requests for which there is no
// decision.
func OnError[C, Fail any](handler Fail) Option {
	return calling[C](given{name: "WithError", answers: true}, keys.IsNil(handler), func(c *config) {
		c.fail = handler
	})
}

// serves returns an error for each callback that does not take a C or a context.Context, and for each that middleware
// needs and does not have.
func serves[C any](l *Limiter) error {
	var wrong faults
	for _, t := range l.callbacks {
		wrong.add(t.Type != contextType && t.Type != reflect.TypeFor[C](), t.Option, fmt.Sprintf("func(%v)", t.Type),
			fmt.Sprintf("the requests of this middleware are %v", reflect.TypeFor[C]()),
			"pass a function with a parameter of that type; for WithDeny and WithError, use the framework's "+
				"own package")
	}
	wrong.add(l.gate.Key.NoRequests, l.gate.Key.Name, "", "requests have no such key",
		"use core.By for requests; with the same name, both share logs")
	for _, p := range []*gate.Policy{&l.gate.Policy, l.gate.Shadow} {
		if p == nil || p.Set == nil { // it depends on requests
			continue
		}
		for _, u := range p.Set.Units {
			if unit := u.Name; unit != "" && l.gate.Costs[unit] == nil && (unit != p.Set.Unit || l.gate.Cost == nil) {
				wrong = append(wrong, gate.CostUnknown(unit))
			}
		}
	}
	return errors.Join(wrong...)
}

// For adapters: KeyOf is for packages that find identities in requests of any framework, as package jwtkey does in
// tokens; for your own keys use [By]. The kind, 1 to 16 of [a-z], separates its identities from those of other kinds. f
// returns a scope, such as the issuer of the identity, and its text. Both are used within the decision and copied if
// they are kept. Faults, made of [ConfigError]s, are reported by [New], for a package that makes a key of settings and
// cannot return an error.
func KeyOf(kind string, f func(adapter.Request) (scope, text string, err error), faults ...error) Key {
	if err := errors.Join(faults...); err != nil {
		return Key{&keys.Spec{Fault: err}}
	}
	return Key{keys.ByKind(kind, f)}
}

// For adapters: KeepsContext reports whether a key of [KeyOf] may replace the context of a request. Where a framework's
// requests cannot be changed, as those of net/http, an [adapter.ContextSetter] is needed only then.
func (l *Limiter) KeepsContext() bool { return l.keeps }

// For adapters: Report is for frameworks in which the adapter recovers a panic of the handler for refused requests. It
// logs the place, as [Limiter.Check] does for callbacks, at most once in ten seconds. An err without an
// [adapter.PanicError] is not logged.
func (l *Limiter) Report(ctx context.Context, err error) {
	l.panicked(ctx, "a handler of refused requests has panicked", err)
}

// For adapters: RuleSet is a *rules.Set of package rules, on which adapters do not depend; see [LimiterOf].
type RuleSet interface {
	Limiter(opts ...Option) (*Limiter, error)
}
