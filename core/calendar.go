package core

import (
	"time"

	"github.com/sashlimit/sash/core/internal/calendar"
)

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
	return Limit{Quota: quota, calendar: calendar.New(unit, time.UTC)}
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
	switch {
	case zone == nil:
		return l.wrongly("the time zone is nil", "check the error of time.LoadLocation")
	case l.calendar.IsSet():
		l.calendar = calendar.New(l.calendar.Unit(), zone)
	case l.Window == day:
		l.calendar = calendar.New(calendar.Day, zone)
	case l.Window == time.Hour:
		l.calendar = calendar.New(calendar.Hour, zone)
	default:
		return l.wrongly("only hours, days and longer calendar periods can be aligned",
			"use core.PerHour, PerDay, PerWeek, PerMonth, PerQuarter or PerYear")
	}
	if !l.anchor.IsZero() {
		l.calendar = l.calendar.From(l.anchor)
	}
	return l
}

// From returns the limit with periods that begin as the anchor does, such as billing periods: on its weekday, day of
// the month, or day of the year, and at its time of day in the limit's zone. It is for [PerWeek], [PerMonth],
// [PerQuarter] and [PerYear], and for other limits after [Limit.In]. If a month is too short, its last day is used:
// months from January 31 begin on February 28 or 29, March 31 and April 30. Fractions of a second are cut off.
func (l Limit) From(anchor time.Time) Limit {
	if !l.calendar.IsSet() {
		return l.wrongly("only calendar periods have an anchor",
			"choose a time zone with In, or use core.PerWeek, PerMonth, PerQuarter or PerYear")
	}
	l.anchor = anchor.Round(0) // without a monotonic clock reading, so that limits are comparable
	l.calendar = l.calendar.From(anchor)
	return l
}
