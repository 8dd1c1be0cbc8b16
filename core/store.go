package core

import (
	"context"
	"time"
)

// Store remembers what was admitted. It answers the questions below, each in
// one atomic step, and is safe for concurrent use. Package coretest holds what
// every store must do.
//
// A question returns soon after its context's deadline, answered or not: limiters wait for
// it. An error says that the store could not answer; a [ConfigError], that it never will.
type Store interface {
	// Validate says what the store cannot serve: limits that are too large for
	// it, and every mistake made when it was constructed. It does no I/O. [New]
	// asks it once, and once more for each new set of limits that [LimitBy] chooses.
	Validate(Limits) error

	// Take decides about one request and records it as its Mode says. A denial is an
	// Answer, not an error. Where a take may be executed twice, because a client sends it
	// again over a network, it is recorded once and answered the same both times: see ID.
	Take(ctx context.Context, t Take) (Answer, error)

	// Settle changes what a take has cost, at the instant when it was recorded; a cost
	// of 0 undoes it. It does nothing when that take is not in the log: it was never recorded, has
	// left, was undone or forgotten, or has begun to be trimmed away.
	Settle(ctx context.Context, s Settle) error

	// Log lists what was recorded within the last window, oldest first.
	Log(ctx context.Context, key StorageKey, window time.Duration) ([]Entry, error)

	// Merge adds entries that were recorded elsewhere, at their true instants, except those
	// that the log already holds: it is a union, so it may be done again.
	Merge(ctx context.Context, m Merge) error

	// Reset forgets a log. A log that does not exist is no error.
	Reset(ctx context.Context, key StorageKey) error
}

// Take is one request as a store sees it.
type Take struct {
	Key    StorageKey
	Limits Limits        // 1 to MaxLimits, valid, in any order
	Shadow int           // the last so many of Limits neither admit nor deny; at least one does
	Keep   time.Duration // entries younger than this stay in the log; at least the longest window
	Varies bool          // other takes on this log may have a longer Keep, which then holds for the log
	Bound  int           // units that ModeChargeDenied keeps; at least the largest quota of Limits
	Cost   int           // units, at least 1; above a quota that limit denies
	ID     uint64        // names this take among all takes of all processes
	Mode   Mode
}

// Mode is what a [Take] records.
type Mode uint8

const (
	// ModeCharge records what is admitted. A denial leaves no trace.
	ModeCharge Mode = iota
	// ModePeek records nothing.
	ModePeek
	// ModeRecord admits and records whatever the limits say. Beyond [MaxRecorded] units, or the
	// largest quota if that is more, the oldest units of the log are trimmed away.
	ModeRecord
	// ModeChargeDenied records denials as well, unless the cost is above a quota. Then the oldest
	// units of the log are trimmed away, beyond Bound.
	ModeChargeDenied
)

// MaxRecorded is how many units [Limiter.Record] keeps of one key, at least.
const MaxRecorded = 100_000

// Answer is what the log says about a [Take].
type Answer struct {
	Allowed bool
	Retry   time.Duration    // until the same take would be admitted; 0 when it is, or never will be
	Shadow  time.Duration    // the same, if the shadow limits were the only ones and had decided
	State   [MaxLimits]State // of each limit, in the order of Take.Limits
}

// State is one limit's view of the log. The limit denies when Used plus the
// cost is more than its quota.
type State struct {
	Used  int           // units in the window before this take
	Reset time.Duration // until the oldest unit leaves, counting this take if it was recorded; 0 when the window is empty
}

// Settle names a take and says what it has cost after all.
type Settle struct {
	Key  StorageKey
	ID   uint64 // that of the Take
	Cost int    // units, at least 0
}

// Merge is what to add to a log.
type Merge struct {
	Key     StorageKey
	Keep    time.Duration // as in Take
	Varies  bool
	Entries []Recorded
}

// Recorded is an entry of another log.
type Recorded struct {
	ID   uint64 // that of the Take
	Age  time.Duration
	Cost int
}

// Entry is a take that fills the window. It does not say who made it.
type Entry struct {
	At   time.Time // on the store's clock
	Cost int       // units
}
