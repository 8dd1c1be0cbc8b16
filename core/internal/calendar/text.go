package calendar

import (
	"fmt"
	"strings"
	"time"
)

// String formats the calendar as [Parse] reads it, for example:
//
//	month
//	day in Europe/Berlin
//	day in +05:45 from 09:30
//	hour in UTC from 00:15
//	week in UTC from Sunday
//	month in Asia/Tokyo from 31
//	quarter in UTC from 02-15
//	year in Europe/London from 04-06 12:00:30
//
// The zone is left out of a week, month, quarter or year in UTC that begins as periods do by default. Hours and days
// always have one, because limits take those without one for any 60 minutes and any 24 hours. The zero value is "".
func (c Calendar) String() string {
	if c.zone == nil {
		return ""
	}
	text, begins := c.unit.String(), c.beginsText()
	if begins == "" && c.zone == time.UTC && c.unit > Day {
		return text
	}
	text += " in " + zoneText(c.zone)
	if begins != "" {
		text += " from " + begins
	}
	return text
}

// ID is equal for calendars with equal periods, also where their zones were loaded twice. It differs for zones of one
// name whose clocks differ in winter or in summer.
func (c Calendar) ID() string {
	if c.zone == nil {
		return ""
	}
	winter := time.Date(2024, time.January, 1, 0, 0, 0, 0, time.UTC).In(c.zone)
	summer := time.Date(2024, time.July, 1, 0, 0, 0, 0, time.UTC).In(c.zone)
	return c.String() + winter.Format(" -07:00:00") + summer.Format(" -07:00:00")
}

// Equal reports whether the periods of two calendars are equal; see [Calendar.ID].
func (c Calendar) Equal(other Calendar) bool { return c == other || c.ID() == other.ID() }

// beginsText formats when periods begin, or returns "" if they begin as they do by default.
func (c Calendar) beginsText() string {
	if c == New(c.unit, c.zone) {
		return ""
	}
	layout := units[c.unit].layout
	switch {
	case c.second%minute != 0:
		layout += " 15:04:05"
	case c.second != 0 || layout == "":
		layout += " 15:04"
	}
	return c.anchor().Format(strings.TrimSpace(layout))
}

// anchor returns an anchor of the calendar, in UTC.
func (c Calendar) anchor() time.Time {
	if c.unit == Week {
		return time.Unix(c.origin(), 0).UTC()
	}
	const leapYear = 1972
	month, dayOfMonth := time.January+time.Month(c.month), max(1, int(c.day))
	anchor := time.Date(leapYear, month, dayOfMonth, 0, 0, int(c.second), 0, time.UTC)
	if anchor.Day() != dayOfMonth {
		// Quarters from the end of May, August and November are not named by the end of February.
		anchor = time.Date(leapYear, month+3, dayOfMonth, 0, 0, int(c.second), 0, time.UTC)
	}
	return anchor
}

const offsetLayout = "-07:00"

// zoneText returns the zone's name, or its offset if it has none.
func zoneText(zone *time.Location) string {
	if name := zone.String(); name != "" {
		return name
	}
	return time.Unix(0, 0).In(zone).Format(offsetLayout)
}

// Error is what is wrong with the zone or the beginning of a calendar's periods, and what to do.
type Error struct{ Problem, Remedy string }

func (e *Error) Error() string { return e.Problem + "; " + e.Remedy }

// Parse reads a calendar from text as [Calendar.String] formats it. A zone that is left out is UTC. If the text begins
// with a period of a calendar, the error is an [Error].
func Parse(text string) (Calendar, error) {
	rest, begins, anchored := strings.Cut(text, " from ")
	name, zoneName, zoned := strings.Cut(rest, " in ")
	unit := Year
	for unit > 0 && unit.String() != strings.TrimSpace(name) {
		unit--
	}
	if unit == 0 {
		return Calendar{}, fmt.Errorf("the period %q is none of hour, day, week, month, quarter and year", name)
	}
	c := New(unit, time.UTC)
	if anchored {
		anchor, ok := parseAnchor(unit, strings.Fields(begins))
		if !ok {
			return Calendar{}, &Error{
				fmt.Sprintf("a %v does not begin at %q", unit, begins), "write " + units[unit].example,
			}
		}
		c = c.From(anchor)
	}
	if zoned {
		zone, err := parseZone(strings.TrimSpace(zoneName))
		if err != nil {
			return Calendar{}, err
		}
		c.zone = zone
	}
	return c, nil
}

// parseAnchor reads an anchor in UTC from a date as the layout of the unit has it, and a time of day.
func parseAnchor(unit Unit, words []string) (anchor time.Time, ok bool) {
	layout, text := units[unit].layout, strings.Join(words, " ")
	for n := range 7 { // time.Parse reads the names of weekdays, but makes no date of them
		date := time.Date(1970, 1, 5+n, 0, 0, 0, 0, time.UTC)
		if unit == Week && len(words) > 0 && strings.EqualFold(date.Weekday().String(), words[0]) {
			layout, words[0] = time.DateOnly, date.Format(time.DateOnly)
			text = strings.Join(words, " ")
		}
	}
	for _, clock := range []string{"", " 15:04", " 15:04:05"} {
		anchor, err := time.Parse(strings.TrimSpace(layout+clock), text)
		if err == nil && text != "" {
			return anchor, anchor.Nanosecond() == 0 && (unit != Hour || anchor.Hour() == 0)
		}
	}
	return anchor, false
}

const remedyZone = `write a name such as "Europe/Berlin" or "UTC"`

// parseZone reads the name of a zone, or an offset such as "+05:45".
func parseZone(name string) (*time.Location, error) {
	if t, err := time.Parse(offsetLayout, name); err == nil {
		_, offset := t.Zone()
		return time.FixedZone(name, offset), nil
	}
	if name == "" {
		return nil, &Error{`there is no time zone after "in"`, remedyZone}
	}
	zone, err := time.LoadLocation(name)
	if err != nil {
		return nil, &Error{err.Error(), remedyZone + `; if this machine lacks the zone, import _ "time/tzdata"`}
	}
	return zone, nil
}
