package core

import (
	"errors"
	"slices"

	"github.com/sashlimit/sash/core/internal/gate"
	"github.com/sashlimit/sash/core/internal/keys"
	"github.com/sashlimit/sash/core/store"
)

// Package store makes these errors.
type (
	// ConfigError is one mistake in the configuration of a limiter, with the option, the value and what would be right.
	// [New] joins all mistakes; [errors.As] returns the first.
	ConfigError = store.ConfigError

	// StoreError means that the store could not answer. Its text is for operators: it may contain addresses and is
	// never sent to a client. Class is the kind of problem, in a word suitable for a metric. Advice says what to do
	// about it.
	StoreError = store.StoreError
)

var (
	// ErrNoKey means that a request has no key: it lacks the header, or has no usable address. [First] then tries its
	// next key; otherwise the request is refused (400) and never counted against a shared quota. A function given to
	// [By] returns ErrNoKey, or an empty string, to say the same.
	ErrNoKey = keys.ErrNoKey

	// ErrForbidden means that the client is on a list of [WithDenyList].
	ErrForbidden = gate.ErrForbidden

	// ErrCostExceedsQuota means that a request costs more than the whole quota of a limit, so that it never fits.
	ErrCostExceedsQuota = errors.New("sash: the cost exceeds the quota, so waiting does not help")
)

func configError(option, value, problem, remedy string) error {
	return &ConfigError{Option: option, Value: value, Problem: problem, Remedy: remedy}
}

// faults are mistakes in a configuration.
type faults []error

// add adds a mistake if something is wrong.
func (f *faults) add(wrong bool, option, value, problem, remedy string) {
	if wrong {
		*f = append(*f, configError(option, value, problem, remedy))
	}
}

// err returns an error of all mistakes, each once: a store reports its own for each set of limits that it checks.
func (f faults) err() error {
	var all []error
	told := make(map[string]bool)
	for errs := slices.Clone(f); len(errs) > 0; errs = errs[1:] {
		err := errs[0]
		several, ok := err.(interface{ Unwrap() []error })
		switch {
		case ok && errors.Join(several.Unwrap()...).Error() == err.Error():
			errs = slices.Insert(errs, 1, several.Unwrap()...)
		case err != nil && !told[err.Error()]:
			told[err.Error()] = true
			all = append(all, err)
		}
	}
	return errors.Join(all...)
}

// Problems and remedies of several errors.
const (
	noFunction = keys.NoFunction
	giveOne    = "pass a function, or leave the option out"
	noLimiter  = "the limiter is nil, or was not made by core.New"
	checkNew   = "use core.New, and check its error"
	zeroKey    = keys.ZeroKey
	otherStore = "use another store, or add what is missing; a wrapper embeds store.Full"
)
