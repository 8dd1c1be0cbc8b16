package rules

import (
	"context"
	"strconv"

	"github.com/sashlimit/sash/core"
)

type options struct {
	verifiers map[string]func(context.Context, string) (string, error)
	claims    func(string) core.Key
	core      []core.Option
	faults    []error
}

// Option changes a default of [Load] and [Parse].
type Option func(*options)

// WithVerifier registers a function under a name, for keys such as {header: X-API-Key, verify: name}. verify returns
// the identity behind a value, as for [core.ByHeader]. It may be given several times.
func WithVerifier(name string, verify func(context.Context, string) (string, error)) Option {
	return func(o *options) {
		_, twice := o.verifiers[name]
		switch {
		case name == "":
			o.fault("WithVerifier", name, "the name is empty", "choose a name")
		case verify == nil:
			o.fault("WithVerifier", name, "the function is nil", "pass a function")
		case twice:
			o.fault("WithVerifier", name, "this name is registered already", "choose another name")
		default:
			o.verifiers[name] = verify
		}
	}
}

// WithClaims sets the function that returns the key of a claim, such as one of package jwtkey. Without it, rules cannot
// name claims.
func WithClaims(key func(claim string) core.Key) Option {
	return func(o *options) {
		if o.claims = key; key == nil {
			o.fault("WithClaims", "nil", "the function is nil", "pass a function")
		}
	}
}

// WithOptions sets options of the limiter that applies the rules, such as [core.WithStore] and [core.WithObserver].
// Options that rules have fields for are errors: [core.WithName], [core.WithCost], [core.WithCostOf],
// [core.WithFailure], [core.WithShadow] and [core.WithBan].
func WithOptions(opts ...core.Option) Option {
	return func(o *options) { o.core = append(o.core, opts...) }
}

func (o *options) fault(option, value, problem, remedy string) {
	o.faults = append(o.faults, &core.ConfigError{
		Option: option, Value: strconv.Quote(value), Problem: problem, Remedy: remedy,
	})
}
