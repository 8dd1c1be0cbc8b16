// Package permits knows the permits that requests in flight hold, and renews them until they are released.
//
// One ticker serves all permits of a [Set]. It runs only while permits are held.
package permits

import (
	"context"

	"github.com/sashlimit/sash/core/internal/next/store"
)

// Logs are the logs that the permits are in.
type Logs interface {
	// Renew renews permits of one log, and adds those that it has lost. If the error is an outage, the Set tries again
	// soon.
	Renew(ctx context.Context, r *store.Renewal) error

	// Release gives a permit back.
	Release(ctx context.Context, p *Permit) error
}

// Permit is the entry of a take in a log of permits.
type Permit struct {
	Key      store.Key // which outlives the request
	Limit    *store.Limit
	ID       uint64
	Degraded bool // it was taken without the store
	Renewed  bool // a renewal may have added it to the store

	Taken int32 // set by Hold if it returns nil: how many permits of the log were held already
}

// Set is the permits that are held. It is safe for concurrent use.
type Set struct{ logs Logs }

// New makes an empty set of permits in logs. Freed is called with the key of a permit that was given back later than
// Release has returned, because a renewal had added it to its log again.
func New(logs Logs, freed func(*store.Key)) *Set { return &Set{logs: logs} }

// Hold adds the permits of one decision to the set, until [Held.Release]. If requests of this process hold all permits
// of one of the logs already, that log has lost some. Then Hold gives all back, and returns nil.
func (s *Set) Hold(ctx context.Context, all []Permit) *Held {
	return &Held{Context: ctx, Permits: all, set: s}
}

// Len returns how many permits are held.
func (s *Set) Len() int { return 0 }

// Close ends the renewal for good. Permits that are held end with their lease.
func (s *Set) Close() {}

// Held is the permits of one decision.
type Held struct {
	Context context.Context //nolint:containedctx // of the request, for those who release the permits when it has ended

	Permits []Permit
	// Deferred says that the permits are not released when the handler ends, because what it has begun holds them still.
	Deferred bool

	set *Set
}

// Release gives the permits back. It does so once, unless it fails: then they are not renewed any more, and it may be
// called again.
func (h *Held) Release(ctx context.Context) error { return nil }
