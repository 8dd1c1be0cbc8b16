package core

import (
	"errors"
	"fmt"

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
	ErrForbidden = errors.New("sash: the client is on a deny list")

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

// entriesNeeded returns the error of a call that needs the entries of a limit which keeps none.
func entriesNeeded(option string, a store.Algorithm) error {
	return configError(option, a.String(), "this algorithm keeps counters, not requests",
		"use limits with sliding logs only")
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

// requestError is an error that core makes while it decides about a request. Its text has nothing of the request.
type requestError struct{ error }

func (e *requestError) Unwrap() error { return e.error }

// listError is an error of a list's key, as opposed to the limiter's key.
type listError struct{ error }

func (e *listError) Error() string { return "sash: the key of a list: " + e.error.Error() }
func (e *listError) Unwrap() error { return e.error }

// limitKeyError is an error of a limit's key, as opposed to the limiter's key.
type limitKeyError struct {
	error

	key    string // name of the function that made it
	limit  string
	policy string // the rule, or empty
	call   bool   // there was no request
}

func (e *limitKeyError) Error() string {
	text := fmt.Sprintf("sash: the key of the limit %s, made by %s: %v", e.limit, e.key, e.error)
	if e.call {
		text += "; this call has a context and no request"
	}
	return text
}

func (e *limitKeyError) Unwrap() error { return e.error }

// costBelow0 returns an error for a unit for which WithCostOf has returned a negative cost.
func costBelow0(unit string) error {
	return &requestError{configError("WithCostOf", unit, "the cost in "+unit+" is below 0", "return 0 or more")}
}

// costUnknown returns an error for a unit for which middleware has no WithCostOf.
func costUnknown(unit string) error {
	return configError("WithCostOf", unit, "no function returns what a request costs",
		fmt.Sprintf("add core.WithCostOf(%q, ...)", unit))
}
