package calendar_test

import (
	"strings"
	"testing"
	"time"
	_ "time/tzdata" // the tests need zones on every machine

	"github.com/sashlimit/sash/core/internal/allocs"
	"github.com/sashlimit/sash/core/internal/calendar"
)

// at reads an instant as the tables write it.
func at(t *testing.T, text string) time.Time {
	t.Helper()
	instant, err := time.Parse("2006-01-02 15:04:05Z07:00", text)
	if err != nil {
		instant, err = time.Parse("2006-01-02 15:04Z07:00", text)
	}
	if err != nil {
		t.Fatal(err)
	}
	return instant
}

func parse(t *testing.T, text string) calendar.Calendar {
	t.Helper()
	c, err := calendar.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// periods has periods by their start and end, and the instants in them that are not at their edges: what zones do with
// their clocks, and what anchors there are, once each. Others are compared with an oracle.
var periods = []struct {
	calendar   string
	start, end string
	within     []string
}{
	// Europe/Berlin: 2026-03-29 02:00 becomes 03:00, 2026-10-25 03:00 becomes 02:00.
	{"day in Europe/Berlin", "2026-03-29 00:00+01:00", "2026-03-30 00:00+02:00", []string{"2026-03-29 03:00+02:00"}},
	{"day in Europe/Berlin", "2026-10-25 00:00+02:00", "2026-10-26 00:00+01:00", []string{"2026-10-25 02:30+01:00"}},
	{"hour in Europe/Berlin", "2026-03-29 01:00+01:00", "2026-03-29 03:00+02:00", nil},
	{
		"hour in Europe/Berlin", "2026-10-25 02:00+02:00", "2026-10-25 03:00+01:00",
		[]string{"2026-10-25 02:30+02:00", "2026-10-25 02:00+01:00", "2026-10-25 02:30+01:00"},
	},
	{"quarter in Europe/Berlin", "2026-01-01 00:00+01:00", "2026-04-01 00:00+02:00", nil},
	{"day in Europe/Berlin from 02:30", "2026-03-28 02:30+01:00", "2026-03-29 03:00+02:00", nil},
	{"day in Europe/Berlin from 02:30", "2026-03-29 03:00+02:00", "2026-03-30 02:30+02:00", nil},
	{
		"day in Europe/Berlin from 02:30", "2026-10-25 02:30+02:00", "2026-10-26 02:30+01:00",
		[]string{"2026-10-25 02:00+01:00", "2026-10-25 02:30+01:00"},
	},
	{"month in Europe/Berlin from 29 02:59:59", "2026-02-28 02:59:59+01:00", "2026-03-29 03:00+02:00", nil},
	{"hour in Europe/Berlin from 00:59:59", "2026-03-29 01:59:59+01:00", "2026-03-29 03:00+02:00", nil},
	{"hour in Europe/Berlin from 00:59:59", "2026-03-29 03:00+02:00", "2026-03-29 03:59:59+02:00", nil},

	// America/New_York: 2026-03-08 02:00 becomes 03:00, 2026-11-01 02:00 becomes 01:00.
	{"week in America/New_York from Sunday", "2026-03-08 00:00-05:00", "2026-03-15 00:00-04:00", nil},

	// Australia/Lord_Howe: 2026-04-05 02:00 becomes 01:30, 2026-10-04 02:00 becomes 02:30.
	{
		"hour in Australia/Lord_Howe", "2026-04-05 01:00+11:00", "2026-04-05 02:00+10:30",
		[]string{"2026-04-05 01:45+11:00", "2026-04-05 01:45+10:30"},
	},
	{"hour in Australia/Lord_Howe", "2026-10-04 01:00+10:30", "2026-10-04 02:30+11:00", nil},
	{"hour in Australia/Lord_Howe", "2026-10-04 02:30+11:00", "2026-10-04 03:00+11:00", nil},

	// America/Sao_Paulo: 2018-11-04 00:00 becomes 01:00, 2019-02-17 00:00 becomes 23:00.
	{"day in America/Sao_Paulo", "2018-11-03 00:00-03:00", "2018-11-04 01:00-02:00", nil},
	{"day in America/Sao_Paulo", "2018-11-04 01:00-02:00", "2018-11-05 00:00-02:00", nil},
	{
		"day in America/Sao_Paulo", "2019-02-16 00:00-02:00", "2019-02-17 00:00-03:00",
		[]string{"2019-02-16 23:30-02:00", "2019-02-16 23:30-03:00"},
	},
	{"month in America/Sao_Paulo from 4", "2018-11-04 01:00-02:00", "2018-12-04 00:00-02:00", nil},

	// Asia/Beirut: 2026-03-29 00:00 becomes 01:00, 2026-10-25 00:00 becomes 23:00.
	{"day in Asia/Beirut", "2026-03-29 01:00+03:00", "2026-03-30 00:00+03:00", nil},
	{"day in Asia/Beirut", "2026-10-24 00:00+03:00", "2026-10-25 00:00+02:00", nil},
	{"hour in Asia/Beirut", "2026-10-24 23:00+03:00", "2026-10-25 00:00+02:00", nil},

	// America/Havana: 2026-11-01 01:00 becomes 00:00, so midnight is shown twice.
	{
		"day in America/Havana", "2026-11-01 00:00-04:00", "2026-11-02 00:00-05:00",
		[]string{"2026-11-01 00:30-04:00", "2026-11-01 00:00-05:00"},
	},

	// America/St_Johns: 2010-11-07 00:01 becomes 23:01, so the clock shows the day before again.
	{"day in America/St_Johns", "2010-11-07 00:00-02:30", "2010-11-08 00:00-03:30", []string{"2010-11-06 23:30-03:30"}},
	{"day in America/St_Johns", "2010-11-06 00:00-02:30", "2010-11-07 00:00-02:30", []string{"2010-11-06 23:30-02:30"}},

	// Pacific/Apia has no 2011-12-30.
	{"day in Pacific/Apia", "2011-12-29 00:00-10:00", "2011-12-31 00:00+14:00", nil},
	{"day in Pacific/Apia", "2011-12-31 00:00+14:00", "2012-01-01 00:00+14:00", nil},
	{"hour in Pacific/Apia", "2011-12-29 23:00-10:00", "2011-12-31 00:00+14:00", nil},
	{"week in Pacific/Apia", "2011-12-26 00:00-10:00", "2012-01-02 00:00+14:00", nil},
	{"week in Pacific/Apia from Friday", "2011-12-31 00:00+14:00", "2012-01-06 00:00+14:00", nil},
	{"month in Pacific/Apia from 30", "2011-12-31 00:00+14:00", "2012-01-30 00:00+14:00", nil},
	{"day in Pacific/Apia from 12:00", "2011-12-29 12:00-10:00", "2011-12-31 00:00+14:00", nil},
	{"day in Pacific/Apia from 12:00", "2011-12-31 00:00+14:00", "2011-12-31 12:00+14:00", nil},

	// Asia/Kathmandu: 1986-01-01 00:00 becomes 00:15.
	{"hour in Asia/Kathmandu", "2026-11-22 12:00+05:45", "2026-11-22 13:00+05:45", nil},
	{"hour in Asia/Kathmandu from 00:15", "2026-11-22 12:15+05:45", "2026-11-22 13:15+05:45", nil},
	{"day in Asia/Kathmandu", "1986-01-01 00:15+05:45", "1986-01-02 00:00+05:45", nil},
	{"year in Asia/Kathmandu", "1986-01-01 00:15+05:45", "1987-01-01 00:00+05:45", nil},

	// America/Juneau had 1867-10-18 twice, but for the time of day.
	{"day in America/Juneau", "1867-10-19 00:00+15:02", "1867-10-20 00:00-08:57", nil},

	// Leap days, ends of months and years.
	{"day in UTC", "2028-02-29 00:00Z", "2028-03-01 00:00Z", nil},
	{"month", "2028-02-01 00:00Z", "2028-03-01 00:00Z", []string{"2028-02-29 12:00Z"}},
	{"month", "2100-02-01 00:00Z", "2100-03-01 00:00Z", nil},
	{"month", "2026-12-01 00:00Z", "2027-01-01 00:00Z", []string{"2026-12-31 23:59:59Z"}},
	{"quarter", "2026-10-01 00:00Z", "2027-01-01 00:00Z", []string{"2026-11-22 12:00Z"}},
	{"year", "2028-01-01 00:00Z", "2029-01-01 00:00Z", []string{"2028-02-29 12:00Z", "2028-12-31 23:59:59Z"}},
	{"week", "2026-12-28 00:00Z", "2027-01-04 00:00Z", []string{"2027-01-01 00:00Z"}},
	{"week in UTC from Tuesday 09:00", "2026-12-29 09:00Z", "2027-01-05 09:00Z", nil},
	{"week", "1969-12-29 00:00Z", "1970-01-05 00:00Z", []string{"1970-01-01 00:00Z"}},

	// Anchors at the ends of months.
	{"month in UTC from 31", "2027-01-31 00:00Z", "2027-02-28 00:00Z", nil},
	{"month in UTC from 31", "2027-02-28 00:00Z", "2027-03-31 00:00Z", nil},
	{"month in UTC from 31", "2027-03-31 00:00Z", "2027-04-30 00:00Z", nil},
	{"month in UTC from 31", "2028-01-31 00:00Z", "2028-02-29 00:00Z", []string{"2028-02-28 12:00Z"}},
	{"month in UTC from 30", "2027-01-30 00:00Z", "2027-02-28 00:00Z", nil},
	{"month in UTC from 30", "2028-02-29 00:00Z", "2028-03-30 00:00Z", nil},
	{"month in UTC from 31 23:59:59", "2027-02-28 23:59:59Z", "2027-03-31 23:59:59Z", nil},
	{"quarter in UTC from 01-31", "2027-01-31 00:00Z", "2027-04-30 00:00Z", nil},
	{"quarter in UTC from 05-31", "2027-02-28 00:00Z", "2027-05-31 00:00Z", nil},
	{"year in UTC from 02-29", "2027-02-28 00:00Z", "2028-02-29 00:00Z", []string{"2028-02-28 12:00Z"}},
	{"year in UTC from 02-29", "2028-02-29 00:00Z", "2029-02-28 00:00Z", nil},
	{"year in UTC from 04-06", "2026-04-06 00:00Z", "2027-04-06 00:00Z", []string{"2027-01-01 00:00Z"}},

	// Years far away.
	{"month", "0001-01-01 00:00Z", "0001-02-01 00:00Z", nil},
	{"quarter in UTC from 02-01", "0000-11-01 00:00Z", "0001-02-01 00:00Z", []string{"0001-01-01 00:00Z"}},
	{"year in UTC from 02-29", "0000-02-29 00:00Z", "0001-02-28 00:00Z", nil},
	{"month in Asia/Tokyo", "9999-11-01 00:00+09:00", "9999-12-01 00:00+09:00", nil},
	{"week", "9999-12-20 00:00Z", "9999-12-27 00:00Z", nil},
}

func TestPeriod(t *testing.T) {
	for _, p := range periods {
		c, start, end := parse(t, p.calendar), at(t, p.start), at(t, p.end)
		if p.calendar == "day in America/Juneau" { // its offsets have seconds
			start, end = start.Add(-19*time.Second), end.Add(41*time.Second)
		}
		instants := []time.Time{start, start.Add(1), start.Add(end.Sub(start) / 2), end.Add(-1)}
		for _, text := range p.within {
			instants = append(instants, at(t, text))
		}
		for _, instant := range instants {
			gotStart, gotEnd := c.Period(instant)
			if !gotStart.Equal(start) || !gotEnd.Equal(end) {
				t.Errorf("%v: the period of %v is %v to %v, want %v to %v",
					c, instant, gotStart, gotEnd, start, end)
			}
			zone := gotStart.Location()
			if gotEnd.Location() != zone || !strings.Contains(c.String()+" UTC", zone.String()) {
				t.Errorf("%v: Period returns instants in %v and %v", c, zone, gotEnd.Location())
			}
		}
		if _, before := c.Period(start.Add(-1)); !before.Equal(start) {
			t.Errorf("%v: the period before %v ends at %v", c, start, before)
		}
		if after, _ := c.Period(end); !after.Equal(end) {
			t.Errorf("%v: the period after %v starts at %v", c, end, after)
		}
	}
}

func TestFrom(t *testing.T) {
	for _, tt := range []struct {
		calendar, anchor, want string
	}{
		{"hour in UTC", "2026-11-22 09:30:15Z", "hour in UTC from 00:30:15"},
		{"hour in Asia/Kathmandu", "2026-11-22 09:30Z", "hour in Asia/Kathmandu from 00:15"},
		{"day in Europe/Berlin", "2026-11-22 08:30Z", "day in Europe/Berlin from 09:30"},
		{"day in Europe/Berlin", "2026-07-22 08:30Z", "day in Europe/Berlin from 10:30"},
		{"day in Europe/Berlin", "2026-07-21 22:00Z", "day in Europe/Berlin"},
		{"week", "2026-11-22 00:00Z", "week in UTC from Sunday"},
		{"week", "2026-11-23 00:00Z", "week"},
		{"week in Asia/Tokyo", "2026-11-21 15:00Z", "week in Asia/Tokyo from Sunday"},
		{"month in UTC from 15", "2026-11-30 23:00Z", "month in UTC from 30 23:00"},
		{"month in Europe/Berlin", "2026-11-30 23:00Z", "month in Europe/Berlin"},
		{"month", "1969-01-31 00:00Z", "month in UTC from 31"},
		{"month", "3000-01-31 00:00Z", "month in UTC from 31"},
		{"quarter", "2026-11-22 00:00Z", "quarter in UTC from 02-22"},
		{"quarter", "2026-11-30 00:00Z", "quarter in UTC from 05-30"},
		{"quarter", "2028-02-29 00:00Z", "quarter in UTC from 02-29"},
		{"quarter", "2026-10-01 00:00Z", "quarter"},
		{"year", "2026-11-22 00:00Z", "year in UTC from 11-22"},
		{"year", "2028-02-29 12:00Z", "year in UTC from 02-29 12:00"},
	} {
		anchor := at(t, tt.anchor)
		c := parse(t, tt.calendar).From(anchor.Add(time.Second - 1)) // fractions are cut off
		if c.String() != tt.want {
			t.Errorf("%s from %s is %v, want %s", tt.calendar, tt.anchor, c, tt.want)
		}
		if start, _ := c.Period(anchor); !start.Equal(anchor) {
			t.Errorf("%v: the period of its anchor %s starts at %v", c, tt.anchor, start)
		}
	}
}

func TestLongest(t *testing.T) {
	const days = 24 * time.Hour
	for _, tt := range []struct {
		calendar string
		longest  time.Duration
	}{
		{"hour in UTC", time.Hour},
		{"day in +05:45", days},
		{"day in Europe/Berlin", 25 * time.Hour},
		{"hour in Europe/Berlin", 2 * time.Hour},
		{"week in America/New_York", 7*days + time.Hour},
		{"month", 31 * days},
		{"month in Europe/Berlin", 31*days + time.Hour},
		{"quarter", 92 * days},
		{"year", 366 * days},
	} {
		c := parse(t, tt.calendar)
		if c.Longest() != tt.longest {
			t.Errorf("%v: Longest is %v, want %v", c, c.Longest(), tt.longest)
		}
	}
}

func TestPeriodAllocatesNothing(t *testing.T) {
	for _, text := range []string{"hour in Europe/Berlin", "week", "month in America/New_York from 31", "year"} {
		c, now := parse(t, text), at(t, "2026-10-25 01:30Z")
		if n := allocs.PerRun(100, func() { c.Period(now) }); n != 0 {
			t.Errorf("%v: Period allocates %v times", c, n)
		}
	}
}
