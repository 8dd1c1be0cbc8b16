// Package event has the outcomes and sources of the events that a limiter's observers get: see core.Event.
package event

import "time"

// Outcome is the result of a request, or a later event about it.
type Outcome uint8

// Each request has exactly one of these outcomes.
const (
	Allowed   Outcome = iota
	Denied            // by a limit
	Banned            // by WithBan
	Forbidden         // by WithDenyList
	Listed            // allowed by WithAllowList, uncounted
	Skipped           // allowed by WithSkip, uncounted
	NoKey             // refused, because it has no key
	Failed            // refused, because a callback or the store has failed

	// These come in addition to the outcome of a request.

	Refunded     // WithRefund gave back what it had taken
	RefundFailed // WithRefund could not
	ShadowFailed // LimitBy of WithShadow has chosen wrong limits, or the key of a limit in shadow could not be read

	// These are about a file of rules, not about a request.

	Reloaded     // the rules of a file are in force
	ReloadFailed // a file of rules is not in force, because it has mistakes
)

var outcomes = [...]string{
	"allowed", "denied", "banned", "forbidden", "listed", "skipped", "no key", "failed",
	"refunded", "refund failed", "shadow failed", "reloaded", "reload failed",
}

// String is the outcome in words fit for a metric, such as "denied" or "no key".
func (o Outcome) String() string { return word(outcomes[:], int(o)) }

func word(of []string, n int) string {
	if n < len(of) {
		return of[n]
	}
	return "unknown"
}

// IsDecision reports whether this is the outcome of a request, and not that of an additional event. Each request has
// exactly one such event.
func (o Outcome) IsDecision() bool { return o <= Failed }

// Source is where a decision came from.
type Source uint8

// Each event has one of these sources.
const (
	None   Source = iota // no log was asked
	Store                // a store outside the process
	Cache                // a denial of the store that was remembered
	Memory               // a MemoryStore
	Local                // the failure policy, because the store does not answer
	Lease                // units that were taken ahead
)

var sources = [...]string{"none", "store", "cache", "memory", "local", "lease"}

// String is the source in a word fit for a metric.
func (s Source) String() string { return word(sources[:], int(s)) }

// Operation is what a store is asked to do: a method of one of the interfaces of package store.
type Operation uint8

// Each [StoreCall] has one of these operations.
const (
	Take Operation = iota
	Settle
	Merge
	Log
	Renew
	Reset
	Overrides
	SetOverride
)

var operations = [...]string{"take", "settle", "merge", "log", "renew", "reset", "overrides", "set override"}

// String is the operation in words fit for a metric, such as "take".
func (o Operation) String() string { return word(operations[:], int(o)) }

// StoreCall is a call to a store outside the process.
type StoreCall struct {
	Policy    string // name of the limiter's policy
	Operation Operation
	Took      time.Duration // until the store returned, also if nobody waited any more
	Err       error         `json:"-"` // what it returned, or nil
}
