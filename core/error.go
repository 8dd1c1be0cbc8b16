package core

import (
	"errors"
	"fmt"
)

var (
	// ErrNoKey means that a request does not tell whose quota it draws from: it has no such header, or no usable
	// address. [First] then tries its next key; otherwise the request is refused (400) and never counted against a
	// shared quota. A function given to [By] returns ErrNoKey, or an empty string, to say the same.
	ErrNoKey = errors.New("sash: the request carries no key")

	// ErrForbidden means that the client is on a list of [WithDenyList].
	ErrForbidden = errors.New("sash: the client is on a deny list")

	// ErrCostExceedsQuota means that a request costs more than the whole quota of a limit, so that it never fits.
	ErrCostExceedsQuota = errors.New("sash: the cost exceeds the quota: it can never pass")
)

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

// ambiguousError refuses a request whose path chooses more rules than can be decided together.
type ambiguousError struct{ error }

func (e *ambiguousError) Error() string {
	return "sash: the request's path can be read in several ways: " + e.error.Error()
}

func (e *ambiguousError) Unwrap() []error { return []error{e.error, ErrNoKey} }
