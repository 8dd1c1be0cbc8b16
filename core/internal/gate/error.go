package gate

import (
	"errors"
	"fmt"
	"slices"

	"github.com/sashlimit/sash/core/adapter"
	"github.com/sashlimit/sash/core/internal/engine"
	"github.com/sashlimit/sash/core/store"
)

// ownCost returns an error of a store that never serves a cost as one whose text can be logged.
func ownCost(err error) error {
	if err != nil && errors.As(err, new(*store.ConfigError)) {
		return &adapter.ConstantError{Err: err}
	}
	return err
}

// ListError is an error of a list's key, as opposed to the limiter's key.
type ListError struct{ Err error }

func (e *ListError) Error() string { return "sash: the key of a list: " + e.Err.Error() }
func (e *ListError) Unwrap() error { return e.Err }

// KeyError is an error of a limit's key, as opposed to the limiter's key.
type KeyError struct {
	Err    error
	Key    string // name of the function that made it
	Policy string // or the rule

	limit string
	call  bool // there was no request
}

func (e *KeyError) Error() string {
	text := fmt.Sprintf("sash: the key of the limit %s, made by %s: %v", e.limit, e.Key, e.Err)
	if e.call {
		text += "; this call has a context and no request"
	}
	return text
}

func (e *KeyError) Unwrap() error { return e.Err }

// keyError returns the error of a key of a set.
func keyError(set *engine.Set, key int, r adapter.Request, err error) error {
	l := &set.Limits[slices.IndexFunc(set.Limits, func(l engine.Limit) bool { return l.Key == key })]
	_, call := r.(NoRequest)
	return &KeyError{Err: err, Key: set.Keys[key].Spec.Name, Policy: l.Rule().Policy, limit: l.Text, call: call}
}
