package core

import (
	"time"

	"github.com/sashlimit/sash/core/internal/calendar"
	"github.com/sashlimit/sash/core/internal/limittext"
	"github.com/sashlimit/sash/core/store"
)

// Algorithm is how the units of a limit are counted; see [Limit.With]. All but [SlidingLog] keep a number or two for
// each key instead of a log. They take less memory and are not exact; the documentation of each says what it gives up.
//
// They keep counters, not requests, so they have no [Limiter.Log]. [Decision.Undo], [Decision.Settle] and [WithRefund]
// change the sum of their period, and nothing after its end. [WithCountDenied], and what [FailLocal] replays to the
// store after an outage, are for sliding logs: they leave other limits of a policy out, and in a policy without a
// sliding log [New] returns an error for the option, as for FailLocal if that is set explicitly. [WithLease] has an
// effect if all limits are sliding logs. A command that a client of the store sends again, because a reply was lost,
// counts twice, unless a sliding log of the same request knows it.
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
// Its counter is named by its algorithm and its window, and not by its quota. So with [LimitBy] a customer who changes
// to a larger plan keeps what was used.
func (l Limit) With(a Algorithm) Limit {
	l.form.Algorithm = a
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
	refill.form.SetBurst(burst)
	return refill
}

// PerWeek allows quota units in each week of the calendar, from Monday 0:00 in UTC: see [Limit.In] and [Limit.From].
// The units of a period are counted in one number ([FixedWindow]), which is exact here, since calendar quotas reset
// when the next period begins, which is when the RetryAfter of a denial ends. A log of a million entries would be no
// more exact, and would take 100 MB.
func PerWeek(quota int) Limit { return perPeriod(quota, calendar.Week) }

// PerMonth allows quota units in each month of the calendar in UTC. See [PerWeek].
func PerMonth(quota int) Limit { return perPeriod(quota, calendar.Month) }

// PerQuarter allows quota units in each quarter of the calendar in UTC. See [PerWeek].
func PerQuarter(quota int) Limit { return perPeriod(quota, calendar.Quarter) }

// PerYear allows quota units in each year of the calendar in UTC. See [PerWeek].
func PerYear(quota int) Limit { return perPeriod(quota, calendar.Year) }

func perPeriod(quota int, unit calendar.Unit) Limit {
	return Limit{Quota: quota, form: limittext.Form{Calendar: calendar.New(unit, time.UTC)}}
}

// In returns the limit with periods that begin by the clock of a time zone: at midnight, or for [PerHour] at the full
// hour. It makes [PerDay] and [PerHour], whose windows slide, limits of the calendar as [PerWeek] describes them. Days
// have 23 or 25 hours when clocks are changed.
//
//	berlin, err := time.LoadLocation("Europe/Berlin")
//	core.PerDay(10).In(berlin)
//
// If you change the zone of a running service, the units that were used in the present period of the new zone stay
// counted.
func (l Limit) In(zone *time.Location) Limit {
	l.form.SetZone(zone, l.Window)
	return l
}

// From returns the limit with periods that begin as the anchor does, such as billing periods: on its weekday, day of
// the month, or day of the year, and at its time of day in the limit's zone. It is for [PerWeek], [PerMonth],
// [PerQuarter] and [PerYear], and for other limits after [Limit.In]. If a month is too short, its last day is used:
// months from January 31 begin on February 28 or 29, March 31 and April 30. Fractions of a second are cut off.
func (l Limit) From(anchor time.Time) Limit {
	l.form.SetAnchor(anchor)
	return l
}
