package core

import (
	"fmt"

	"github.com/sashlimit/sash/core/internal/limittext"
	"github.com/sashlimit/sash/core/store"
)

// Algorithm is how the units of a limit are counted; see [Limit.With]. All but [SlidingLog] keep a number or two for
// each key instead of a log. They take less memory and are not exact; the documentation of each says what it gives up.
//
// They keep counters, not requests, so [New] returns an error for [WithRefund], [WithCountDenied] and [WithShadow] with
// such limits, and [Decision.Undo], [Decision.Settle], [Limiter.Log] and [Limiter.Record] return one. A [Limiter.Wait]
// that ends with its context may have taken its units. [FailLocal] stays the default, but its admissions are not
// replayed to the store; setting it explicitly for such a limit is an error. A command that a client of the store sends
// again, because a reply was lost, counts twice. Over several servers of a cluster, a request that one such limit
// denies may be counted by another, when requests for the same keys come at the same time.
//
// All of this applies to a limiter if one of its limits has such an algorithm.
type Algorithm = store.Algorithm

// The algorithms of [Limit.With].
const (
	// SlidingLog is exact: never more than the quota in any window, and no denial while there is room. It is the
	// default.
	SlidingLog = store.SlidingLog

	// FixedWindow counts in periods that follow each other, such as minutes of the clock. Around the end of a period it
	// admits up to twice the quota in less than a window. Periods begin at the Unix epoch, in UTC.
	FixedWindow = store.FixedWindow

	// SlidingCounter counts in periods as well, and adds to the count of the present one the part of the period before
	// that the window still covers, as if its requests had been spread evenly. If they were not, it admits more than
	// the quota in some windows, and denies requests in others that have room.
	SlidingCounter = store.SlidingCounter
)

// With returns the limit with another [Algorithm].
//
//	core.PerMinute(100).With(core.FixedWindow)
//
// Its counters are named by its window, and by its Name if it has one, but not by its quota. So with [LimitBy] a
// customer who changes to a larger plan keeps what was used. Two limits with the same window and key need names.
func (l Limit) With(a Algorithm) Limit {
	l.algorithm = a
	return l
}

// TokenBucket allows bursts: a client may use up to burst units at once, 1 to [MaxQuota], and they come back one by
// one at the rate of refill. For example, 50 units that come back at 10 a second:
//
//	core.TokenBucket(core.PerSecond(10), 50)
//
// In a window it admits up to burst units, and those that come back meanwhile. An empty bucket must be full again
// within 365 days. See [Algorithm] for what such a limit cannot do. It is computed as the generic cell rate algorithm,
// with the time for one unit rounded up to a nanosecond.
func TokenBucket(refill Limit, burst int) Limit {
	if refill.algorithm != SlidingLog || refill.calendar.IsSet() || refill.inFlight {
		refill = refill.wrongly("the refill of core.TokenBucket is not a rate",
			"use a plain rate, such as core.PerSecond(10)")
	}
	refill.algorithm, refill.burst = store.TokenBucket, burst
	return refill
}

// algorithmFault returns what is wrong with the algorithm of a limit whose other fields are valid, or the zero fault.
func (l *Limit) algorithmFault() fault {
	switch {
	case l.calendar.IsSet() && l.algorithm != SlidingLog && l.algorithm != FixedWindow:
		return fault{
			fmt.Sprintf("a %v cannot count calendar periods", l.algorithm),
			"leave With out, or use a window such as core.PerDay(n) without In",
		}
	case l.algorithm > store.TokenBucket:
		return fault{
			fmt.Sprintf("there is no algorithm %d", l.algorithm),
			"choose SlidingLog, FixedWindow or SlidingCounter, or use core.TokenBucket",
		}
	case l.algorithm != store.TokenBucket && l.burst != 0:
		return fault{fmt.Sprintf("a %v has no burst", l.algorithm), "call With on a limit without a burst"}
	case l.algorithm != store.TokenBucket:
	case l.burst < 1 || l.burst > MaxQuota:
		return fault{
			fmt.Sprintf("the burst %d is out of range", l.burst),
			fmt.Sprintf("choose 1 to %d units: core.TokenBucket(refill, burst)", MaxQuota),
		}
	case store.Limit{Window: l.Window, Refill: l.Quota}.Interval() > int64(MaxWindow)/int64(l.burst):
		return fault{
			fmt.Sprintf("an empty bucket of %d takes longer than %v to fill", l.burst, limittext.Period(MaxWindow)),
			"refill it faster, or choose a smaller burst",
		}
	}
	return fault{}
}
