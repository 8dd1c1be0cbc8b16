package core

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

var (
	// ErrNoKey says that a request does not tell whose quota it draws from: no
	// such header, no usable address. [First] goes on to its next key; without
	// one the request is refused (400) and never counted against a shared quota.
	// A function given to [By] returns it, or an empty string, to say the same.
	ErrNoKey = errors.New("sash: the request carries no key")

	// ErrForbidden says that who asks is on a list of [WithDenyList].
	ErrForbidden = errors.New("sash: the client is on a deny list")

	// ErrCostExceedsQuota says that a request costs more than a limit's whole
	// quota, so that no wait will ever let it pass.
	ErrCostExceedsQuota = errors.New("sash: the cost exceeds the quota: it can never pass")
)

// LimitedError carries a denial where Go wants an error; see [Decision.Err].
// It is [ErrCostExceedsQuota] when waiting cannot help.
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
