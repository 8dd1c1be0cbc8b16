package gate

import (
	"errors"
	"fmt"

	"github.com/sashlimit/sash/core/adapter"
	"github.com/sashlimit/sash/core/internal/engine"
	"github.com/sashlimit/sash/core/store"
)

// OwnError is an error whose text is sash's own and has nothing of the request, so that it can be logged.
type OwnError struct{ Err error }

func (e *OwnError) Error() string { return e.Err.Error() }
func (e *OwnError) Unwrap() error { return e.Err }

// ownCost returns an error of a store that never serves a cost as an OwnError.
func ownCost(err error) error {
	if err != nil && errors.As(err, new(*store.ConfigError)) {
		return &OwnError{err}
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
	Policy string // of the rule, or empty

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
	e := &KeyError{Err: err, Key: set.Keys[key].Spec.Name}
	_, e.call = r.(NoRequest)
	for i := range set.Limits {
		if l := &set.Limits[i]; l.Key == key {
			if e.limit = l.Text; l.Rule() != nil {
				e.Policy = l.Rule().Policy
			}
			break
		}
	}
	return e
}
