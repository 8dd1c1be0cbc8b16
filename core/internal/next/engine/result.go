package engine

import (
	"context"
	"time"

	"github.com/sashlimit/sash/core/event"
	"github.com/sashlimit/sash/core/internal/next/store"
)

// Cause is what has decided.
type Cause uint8

// These are the causes.
const (
	ByNothing  Cause = iota // there is no decision, or no limit was asked
	ByLimits                // the limits
	ByOpen                  // FailOpen, which counts nothing
	ByBan                   // a ban; if it begins, the limits have denied before
	ByOverride              // an override that denies
)

// Result is a decision. It may be copied: what is given back or settled by one copy, others know. Numbers are asked for
// by limit, an index of Set.Limits.
type Result struct {
	Set      *Set // with overrides
	Mode     store.Mode
	Allowed  bool
	Cause    Cause
	Granted  int           // units of costs without a name that the request may use
	Retry    time.Duration // until the request fits if no other is admitted; 0 if that is not known, or never
	Source   event.Source
	Degraded bool      // the store has not decided
	Err      error     // why it has not
	Override *Override // of a key of the request, or nil

	Shadow    *Result // what is tried out, or nil
	ShadowErr error   // why there is none, or nil
}

// Asks reports whether the request was asked about a limit.
func (r *Result) Asks(limit int) bool { return false }

// Tells reports whether the numbers of a limit are known: it was asked, a denial from memory has not left it out, and no
// override lets it deny nothing.
func (r *Result) Tells(limit int) bool { return false }

// Denies reports whether a limit has denied.
func (r *Result) Denies(limit int) bool { return false }

// Denying returns the names of the limits that have denied; of those whose quota is less than the cost, if there are
// any. It must not be written to.
func (r *Result) Denying() []string { return nil }

// Never reports whether the request was denied because it costs more than a whole quota.
func (r *Result) Never() bool { return false }

// AwaitsPermit reports whether a limit of requests in flight has denied.
func (r *Result) AwaitsPermit() bool { return false }

// Used returns how many units of a limit there were in its window before this request.
func (r *Result) Used(limit int) int { return 0 }

// Left returns what a limit has left after this request.
func (r *Result) Left(limit int) int { return 0 }

// Reset returns how long it takes until the oldest unit leaves the window of a limit: 0 if there is none, and for
// requests in flight.
func (r *Result) Reset(limit int) time.Duration { return 0 }

// Tightest returns the limit with the least left, or if they count several units with the smallest share left; of a
// denial only limits that denied are compared. It returns -1 if no limit was asked.
func (r *Result) Tightest() int { return -1 }

// UsedOfLongest returns Used of the limit with the longest window, of a denial that of [Result.Tightest].
func (r *Result) UsedOfLongest() int { return 0 }

// Rule returns the rule of the first limit that has denied, or the first rule; nil without rules.
func (r *Result) Rule() *Rule { return nil }

// Identity returns whose quota the request uses: of the first key of its own.
func (r *Result) Identity() *store.Identity { return nil }

// AppendRateLimit appends the items of the field RateLimit.
func (r *Result) AppendRateLimit(b []byte) []byte { return b }

// Keep makes the result independent of the memory that its identities were read from.
func (r *Result) Keep() {}

// Settle changes the cost in the logs of the limits for which costOf returns one. call names the call in errors.
func (r *Result) Settle(ctx context.Context, call string, costOf func(*Limit) (cost int, ok bool)) error {
	return nil
}

// Undo gives back all that was taken, permits included.
func (r *Result) Undo(ctx context.Context) error { return nil }

// Release ends what the request holds: permits.
func (r *Result) Release(ctx context.Context) error { return nil }

// Holds reports whether the request has permits, which are to be released.
func (r *Result) Holds() bool { return false }

// ResetKeys deletes what the own keys of the request have used, with [Engine.Reset]; of rules, what these have counted
// for their keys.
func (r *Result) ResetKeys(ctx context.Context) error { return nil }

// Now returns the limits as they stand now, for a page: each is asked by itself for one unit, in no mode that records,
// and neither bans nor overrides are looked at. It fails if the store does not answer.
func (r *Result) Now(ctx context.Context) (*Result, error) { return nil, nil }

// Entries lists the entries of a limit's log, oldest first; nil if it keeps none.
func (r *Result) Entries(ctx context.Context, limit int) ([]store.Entry, error) { return nil, nil }

// ResetLimit deletes what a limit's key has used, of all limits of the key in the set. Of the own key it lifts bans too.
func (r *Result) ResetLimit(ctx context.Context, limit int) error { return nil }
