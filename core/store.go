package core

import (
	"context"
	"time"
)

// Store remembers what was admitted. It answers the questions below, each in
// one atomic step, and is safe for concurrent use. Package coretest holds what
// every store must do.
type Store interface {
	// Validate says what the store cannot serve: limits that are too large for
	// it, and every mistake made when it was constructed. It does no I/O. [New]
	// asks it once, and once more for each new set of limits that [LimitBy] chooses.
	Validate(Limits) error

	// Take decides about one request and records it if it is admitted. A denial
	// is an Answer, not an error, and leaves no trace. A [ConfigError] says that
	// the take itself cannot be served. Where a take may be executed twice, because a
	// client sends it again over a network, it charges once and is admitted both times: see ID.
	Take(ctx context.Context, t Take) (Answer, error)

	// Reset forgets a log. A log that does not exist is no error.
	Reset(ctx context.Context, key StorageKey) error
}

// Take is one request as a store sees it.
type Take struct {
	Key    StorageKey
	Limits Limits        // all of them must admit the request; 1 to MaxLimits, valid, in any order
	Keep   time.Duration // entries younger than this stay in the log; at least the longest window
	Varies bool          // other takes on this log may have a longer Keep, which then holds for the log
	Cost   int           // units, at least 1; above a quota that limit denies
	ID     uint64        // names this take among all takes of all processes
	Peek   bool          // decide, but record nothing
}

// Answer is what the log says about a [Take].
type Answer struct {
	Allowed bool
	Retry   time.Duration    // until the same take would be admitted; 0 when it is, or never will be
	State   [MaxLimits]State // of each limit, in the order of Take.Limits
}

// State is one limit's view of the log. The limit denies when Used plus the
// cost is more than its quota.
type State struct {
	Used  int           // units in the window before this take
	Reset time.Duration // until the oldest unit leaves, counting this take if it was recorded; 0 when the window is empty
}
