package calendar_test

import (
	"strings"
	"testing"
	"time"

	"github.com/sashlimit/sash/core/internal/calendar"
)

func TestParse(t *testing.T) {
	for _, tt := range []struct{ text, want string }{
		{"month", "month"},
		{"month in UTC", "month"},
		{"week", "week"},
		{"quarter", "quarter"},
		{"year", "year"},
		{"day", "day in UTC"},
		{"hour in UTC from 00:00", "hour in UTC"},
		{"hour in UTC from 00:00:01", "hour in UTC from 00:00:01"},
		{"day in Europe/Berlin", "day in Europe/Berlin"},
		{"day in +05:45 from 09:30", "day in +05:45 from 09:30"},
		{"day in Europe/Berlin from 00:00", "day in Europe/Berlin"},
		{"week in UTC from Monday", "week"},
		{"week from sunday", "week in UTC from Sunday"},
		{"week in UTC from Saturday 23:59:59", "week in UTC from Saturday 23:59:59"},
		{"month from 31", "month in UTC from 31"},
		{"month in UTC from 1", "month"},
		{"month in UTC from 1 09:30", "month in UTC from 1 09:30"},
		{"quarter in Asia/Tokyo from 02-15", "quarter in Asia/Tokyo from 02-15"},
		{"quarter in UTC from 11-30", "quarter in UTC from 05-30"},
		{"quarter in UTC from 12-31", "quarter in UTC from 03-31"},
		{"quarter in UTC from 04-01", "quarter"},
		{"year in Europe/London from 04-06 12:00:30", "year in Europe/London from 04-06 12:00:30"},
		{"year in UTC from 02-29", "year in UTC from 02-29"},
		{" month  in  Europe/Berlin  from  31  09:30 ", "month in Europe/Berlin from 31 09:30"},
	} {
		c, err := calendar.Parse(tt.text)
		if err != nil || c.String() != tt.want {
			t.Errorf("Parse(%q) = %v, %v, want %s", tt.text, c, err, tt.want)
		}
		if again, err := calendar.Parse(tt.want); err != nil || !equal(again, c) {
			t.Errorf("Parse(%q) = %v, %v, which is not equal to Parse(%q)", tt.want, again, err, tt.text)
		}
	}
}

func TestParseRejects(t *testing.T) {
	for _, tt := range []struct{ text, want string }{
		{"", "none of hour, day"},
		{"minute", `"minute" is none of hour, day`},
		{"months", "none of hour, day"},
		{"2 months in UTC", "none of hour, day"},
		{"month in", "none of hour, day"},
		{"month in ", `time zone after "in"`},
		{"month in  from 3", `time zone after "in"`},
		{"month in Europe/Atlantis", `unknown time zone Europe/Atlantis; write a name such as "Europe/Berlin"`},
		{"month in +99:00", "time zone"},
		{"hour in UTC from 01:15", `does not begin at "01:15"; write minutes, such as "00:15"`},
		{"day in UTC from 24:00", "write a time of day"},
		{"day in UTC from 09:00:00.5", "write a time of day"},
		{"day in UTC from 31 09:00", "write a time of day"},
		{"week in UTC from 3", `write a day, such as "Sunday"`},
		{"week in UTC from Sun", `write a day, such as "Sunday"`},
		{"week in UTC from Sunday 9 am", `write a day, such as "Sunday"`},
		{"month in UTC from 0", "write a day"},
		{"month in UTC from 32", "write a day"},
		{"month in UTC from  ", "write a day"},
		{"month in UTC from 31 09:30 12:00", "write a day"},
		{"quarter in UTC from 31", "write month and day"},
		{"year in UTC from 02-30", "write month and day"},
		{"year in UTC from 13-01", "write month and day"},
	} {
		if c, err := calendar.Parse(tt.text); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("Parse(%q) = %v, %v, want an error with %q", tt.text, c, err, tt.want)
		}
	}
}

func TestZoneText(t *testing.T) {
	for want, zone := range map[string]*time.Location{
		"day in UTC":    nil,
		"day in +01:00": time.FixedZone("", 3600),
		"day in -03:30": time.FixedZone("", -12600),
		"day in Office": time.FixedZone("Office", 3600),
		"day in Local":  time.Local, //nolint:gosmopolitan // it has a name that is none of a zone
	} {
		if got := calendar.New(calendar.Day, zone).String(); got != want {
			t.Errorf("a day in %v is %q, want %q", zone, got, want)
		}
	}
}

// equal reports whether the periods of a year are equal. Calendars of a zone that was loaded twice differ by ==.
func equal(a, b calendar.Calendar) bool {
	for month := time.January; month <= time.December; month++ {
		now := time.Date(2026, month, 15, 0, 0, 0, 0, time.UTC)
		start, end := a.Period(now)
		if otherStart, otherEnd := b.Period(now); !start.Equal(otherStart) || !end.Equal(otherEnd) {
			return false
		}
	}
	return true
}

func TestEqual(t *testing.T) {
	if text := (calendar.Calendar{}).String(); text != "" {
		t.Errorf("the zero value is %q", text)
	}
	if a, b := parse(t, "day in UTC from 09:00"), parse(t, "day in UTC from 09:00"); a != b {
		t.Error("equal calendars in one zone differ by ==")
	}
	again := parse(t, "day in Europe/Berlin") // a zone that is loaded twice
	for _, c := range []struct {
		a, b  calendar.Calendar
		equal bool
	}{
		{parse(t, "day in Europe/Berlin"), again, true},
		{parse(t, "day in Europe/London"), again, false},
		{parse(t, "day in Europe/Berlin from 09:00"), again, false},
		{calendar.Calendar{}, again, false},
		{calendar.Calendar{}, calendar.Calendar{}, true},
	} {
		if c.a.Equal(c.b) != c.equal || c.b.Equal(c.a) != c.equal {
			t.Errorf("%v equals %v: want %v", c.a, c.b, c.equal)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add("month in Europe/Berlin from 31 09:30")
	f.Add("week from Sunday")
	f.Add("quarter in +05:45 from 11-30")
	f.Add("hour in UTC from 00:15:30")
	f.Fuzz(func(t *testing.T, text string) {
		c, err := calendar.Parse(text)
		if err != nil {
			return
		}
		again, err := calendar.Parse(c.String())
		if err != nil || !equal(again, c) || again.String() != c.String() {
			t.Fatalf("Parse(%q) = %v, but Parse(%q) = %v, %v", text, c, c.String(), again, err)
		}
	})
}
