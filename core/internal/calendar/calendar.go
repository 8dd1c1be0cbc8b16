// Package calendar computes the periods of a calendar, such as the months of a time zone.
package calendar

import "time"

// Unit is the kind of a calendar's periods. The zero value is none.
type Unit uint8

// The units of a calendar.
const (
	Hour Unit = iota + 1
	Day
	Week
	Month
	Quarter
	Year
)

const (
	minute = 60
	hour   = 60 * minute
	day    = 24 * hour
	week   = 7 * day
)

// units has, by Unit, the name and length of its periods. A length is in seconds or in months.
var units = [...]struct {
	name            string
	seconds, months int64
	longest         int64  // seconds, if the clock is never changed
	layout          string // how the beginning of periods is written, but for the time of day
	example         string // what may be written after "from"
}{
	Hour:    {"hour", hour, 0, hour, "", `minutes, such as "00:15"`},
	Day:     {"day", day, 0, day, "", `a time of day, such as "09:30"`},
	Week:    {"week", week, 0, week, "Monday", `a day, such as "Sunday" or "Sunday 09:30"`},
	Month:   {"month", 0, 1, 31 * day, "2", `a day, such as "31" or "31 09:30"`},
	Quarter: {"quarter", 0, 3, 92 * day, "01-02", `month and day, such as "02-15" or "02-15 09:30"`},
	Year:    {"year", 0, 12, 366 * day, "01-02", `month and day, such as "04-06" or "04-06 09:30"`},
}

// String returns the unit's name, such as "month".
func (u Unit) String() string { return units[u].name }

// Calendar divides time into periods by the clock of a time zone. It is immutable. The zero value is none: only [New]
// and [Parse] make calendars. Of calendars that are equal by ==, all periods are equal.
//
// A period begins when the zone's clock first shows its beginning, or a later time if it skips that. So all instants
// are in exactly one period, also where clocks are changed:
//
//   - A day without a midnight begins at its first instant, and a day with two begins at the first of them.
//   - Days may have 23 or 25 hours.
//   - An hour that the clock repeats is one period of two hours, and an hour of which it skips one half is a period of
//     half an hour.
//   - A period that the clock skips does not exist, such as 30 December 2011 in Samoa.
type Calendar struct {
	zone *time.Location
	unit Unit

	// Where the periods begin. They repeat, so an anchor is reduced to what its unit needs.
	month  int8  // of Quarter: 0 to 2 months after its first month; of Year: 0 to 11 months after January
	day    int8  // of Week: 0 to 6 days after Monday; of Month, Quarter and Year: 1 to 31, clamped in shorter months
	second int32 // after midnight, or of Hour: after the full hour
}

// New returns the calendar of a unit in a zone, in which all periods begin at midnight and weeks on Mondays, as in ISO
// 8601. If the zone is nil, it is UTC.
func New(unit Unit, zone *time.Location) Calendar {
	if zone == nil {
		zone = time.UTC
	}
	c := Calendar{zone: zone, unit: unit}
	if units[unit].months > 0 {
		c.day = 1
	}
	return c
}

// From returns the calendar with periods that begin as the anchor does: at the minute of an hour, time of day, weekday,
// day of a month, or day of a year that it has in the calendar's zone. One of the periods begins at the anchor, unless
// the clock shows the anchor's time twice and the anchor is the second. Fractions of seconds are cut off.
//
// If a month is shorter, its last day is used: months from January 31 begin on February 28 or 29, March 31 and April
// 30, and years from February 29 on February 28 where it is the last.
func (c Calendar) From(anchor time.Time) Calendar {
	anchor = anchor.In(c.zone)
	h, m, s := anchor.Clock()
	c.second = int32(h*hour + m*minute + s)
	switch c.unit {
	case Day:
	case Hour:
		c.second %= hour
	case Week:
		c.day = int8((anchor.Weekday() + 6) % 7)
	case Month, Quarter, Year:
		c.day = int8(anchor.Day())
		c.month = int8(int64(anchor.Month()-1) % units[c.unit].months)
	}
	return c
}

// IsSet reports whether c is a calendar, and not none.
func (c Calendar) IsSet() bool { return c != Calendar{} }

// Unit returns the kind of the calendar's periods.
func (c Calendar) Unit() Unit { return c.unit }

// Period returns the period that holds t: start is not after t, and end is. The period after it starts at its end.
// Both are whole seconds, in the calendar's zone. It takes all instants that [time.UnixMicro] returns.
func (c Calendar) Period(t time.Time) (start, end time.Time) {
	now := t.Unix()
	offset, _ := c.offsetUntil(now)
	index := c.index(now + offset)
	next := c.reach(c.begin(index+1), offset)
	for next <= now {
		// The clock has shown this beginning before, and was set back since.
		index++
		next = c.reach(c.begin(index+1), offset)
	}
	return time.Unix(c.reach(c.begin(index), offset), 0).In(c.zone), time.Unix(next, 0).In(c.zone)
}

// The following functions count a zone's time in seconds: a clock that shows the start of 1970 shows 0. Periods have an
// index, which grows by one from each to the next, whether the clock shows them or skips them.

// index returns the period that a clock is in when it shows now.
func (c Calendar) index(now int64) int64 {
	u := &units[c.unit]
	if u.months == 0 {
		return floorDiv(now-c.origin(), u.seconds)
	}
	year, month, _ := time.Unix(now, 0).UTC().Date()
	index := floorDiv(12*int64(year)+int64(month-1)-int64(c.month), u.months)
	if c.begin(index) > now {
		index--
	}
	return index
}

// begin returns what the clock shows when a period begins.
func (c Calendar) begin(index int64) int64 {
	u := &units[c.unit]
	if u.months == 0 {
		return c.origin() + index*u.seconds
	}
	month := time.Month(index*u.months + int64(c.month) + 1)
	first := time.Date(0, month, 1, 0, 0, 0, 0, time.UTC).Unix()
	next := time.Date(0, month+1, 1, 0, 0, 0, 0, time.UTC).Unix()
	return min(first+int64(c.day-1)*day, next-day) + int64(c.second)
}

// origin returns the beginning of period 0, if periods have a length in seconds.
func (c Calendar) origin() int64 {
	const monday = 4 * day // 1970-01-05
	if c.unit == Week {
		return monday + int64(c.day)*day + int64(c.second)
	}
	return int64(c.second)
}

func floorDiv(a, b int64) int64 {
	q := a / b
	if a%b < 0 {
		q--
	}
	return q
}
