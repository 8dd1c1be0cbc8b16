package engine

import (
	"context"

	"github.com/sashlimit/sash/core/internal/next/store"
)

// Ask is what a request asks. Its slices are not kept.
type Ask struct {
	Set        *Set
	Identities []store.Identity // of Set.Keys
	Cost       int              // of costs without a name: 0 to MaxQuota, more never fits
	Costs      []int            // of Set.Limits, 0 leaves one out; nil: Cost of the limits of Set.Unit, and no others
	Mode       store.Mode
	Tries      bool // a denial counts towards a ban
	NoPermits  bool // the request holds permits of this limiter already, so it takes no more
	Shadow     *Ask // what is tried out beside it, or nil; of this, Set, Identities, Cost and Costs are used
}

// Decide makes every decision. It fills r in, which must be zero. An error means that there is no decision: a
// [store.StoreError], or a [store.ConfigError] if the request can never be decided.
func (e *Engine) Decide(ctx context.Context, a *Ask, r *Result) error { return nil }

// Wait is Decide for a request that waits until it is admitted, in the order in which requests have come. It returns the
// last decision. The error is [context.DeadlineExceeded] as soon as it is known that ctx ends earlier. Nothing is
// decided if ctx has ended or the store has failed: then r is zero. A cost that never fits is a decision at once.
func (e *Engine) Wait(ctx context.Context, a *Ask, r *Result) error { return nil }
