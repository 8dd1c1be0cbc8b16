package core_test

import (
	"errors"
	"strings"
	"testing"
	"time"
	_ "time/tzdata" // the machine may have none, or old ones

	"github.com/sashlimit/sash/core"
)

// Limits of calendar periods print what In and From have made of them, and read as that.
func TestCalendarLimits(t *testing.T) {
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	sunday, last := time.Date(2000, 1, 2, 0, 0, 0, 0, time.UTC), time.Date(2000, 1, 31, 0, 0, 0, 0, berlin)
	for text, limit := range map[string]core.Limit{
		"5/hour in Europe/Berlin":          core.PerHour(5).In(berlin),
		"5/day in Europe/Berlin":           core.PerDay(5).In(berlin),
		"7/week in UTC from Sunday":        core.PerWeek(7).From(sunday),
		"7/month in Europe/Berlin from 31": core.PerMonth(7).From(last).In(berlin),
		"1/quarter":                        core.PerQuarter(1),
		"2/year in Europe/Berlin":          core.PerYear(2).In(berlin),
	} {
		if read, err := core.ParseLimit(text); err != nil || read.String() != limit.String() {
			t.Errorf("%v is not %s, which reads as %v, %v", limit, text, read, err)
		}
	}
	a, b := core.PerMonth(7).In(berlin).From(last), core.PerMonth(7).From(last).In(berlin)
	if a.String() != b.String() {
		t.Errorf("%v is not %v", a, b)
	}
}

func TestParseCalendarLimits(t *testing.T) {
	for _, text := range []string{
		"1000000/month", "5/day in Europe/Berlin", "7/week", "7/week in UTC from Sunday", "1/quarter", "2/year",
		"3/hour in Asia/Kathmandu", "1000/month in Asia/Tokyo from 31",
	} {
		l, err := core.ParseLimit(text)
		if err != nil || l.String() != text {
			t.Errorf("%q became %v, %v", text, l, err)
		}
		if _, err = core.New(l, core.ByText()); err != nil {
			t.Error(err)
		}
		per := strings.Replace(text, "/", " per ", 1)
		if l, err := core.ParseLimit(per); err != nil || l.String() != text {
			t.Errorf("%q became %v, %v", per, l, err)
		}
	}
	for _, text := range []string{"5/day in Atlantis", "5/minute in UTC", "5/month burst 3", "5/month in UTC from 32"} {
		if l, err := core.ParseLimit(text); !errors.As(err, new(*core.ConfigError)) {
			t.Errorf("%q became %v, %v", text, l, err)
		}
	}
}
