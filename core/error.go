package core

import (
	"errors"
	"fmt"
	"strings"
	"time"
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

// LimitedError is a denial as an error; see [Decision.Err]. It wraps [ErrCostExceedsQuota] if waiting cannot help.
type LimitedError struct{ Decision Decision }

func (e *LimitedError) Error() string {
	d := e.Decision
	over := strings.Join(d.Violated, ", ")
	if d.Never() {
		return fmt.Sprintf("sash: limited by %s: the cost exceeds the quota", over)
	}
	return fmt.Sprintf("sash: limited by %s: free in %v", over, d.RetryAfter.Round(time.Microsecond))
}

func (e *LimitedError) Unwrap() error {
	if e.Decision.Never() {
		return ErrCostExceedsQuota
	}
	return nil
}
