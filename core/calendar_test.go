package core_test

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	_ "time/tzdata" // the machine may have none, or old ones

	"github.com/sashlimit/sash/core"
)

func zone(t *testing.T, name string) *time.Location {
	t.Helper()
	loc, err := time.LoadLocation(name)
	if err != nil {
		t.Fatal(err)
	}
	return loc
}

// A quota that is used up is whole again when the next period begins, and not a microsecond before. Bubbles begin at
// 2000-01-01 in UTC, which is a leap year.
func TestCalendarPeriods(t *testing.T) {
	berlin, newYork := zone(t, "Europe/Berlin"), zone(t, "America/New_York")
	utc := func(text string) time.Time {
		at, err := time.Parse(time.RFC3339, text)
		if err != nil {
			t.Fatal(err)
		}
		return at
	}
	last := utc("2000-01-31T00:00:00Z")
	for _, c := range []struct {
		limit    core.Limit
		at, next string
	}{
		{core.PerMonth(2), "2000-01-01T00:00:00Z", "2000-02-01T00:00:00Z"},
		{core.PerMonth(2), "2000-02-28T12:00:00Z", "2000-03-01T00:00:00Z"}, // leap day
		{core.PerMonth(2), "2001-02-28T12:00:00Z", "2001-03-01T00:00:00Z"},
		{core.PerMonth(2).In(berlin), "2000-03-01T00:00:00Z", "2000-03-31T22:00:00Z"},
		{core.PerDay(2).In(berlin), "2000-03-25T23:00:00Z", "2000-03-26T22:00:00Z"}, // 23 hours
		{core.PerDay(2).In(berlin), "2000-10-28T22:00:00Z", "2000-10-29T23:00:00Z"}, // 25 hours
		{core.PerDay(2).In(newYork), "2000-04-02T05:00:00Z", "2000-04-03T04:00:00Z"},
		{core.PerDay(2).In(newYork), "2000-10-29T04:00:00Z", "2000-10-30T05:00:00Z"},
		{core.PerHour(2).In(newYork), "2000-10-29T05:59:59.999999Z", "2000-10-29T07:00:00Z"}, // 1:00 comes twice
		{core.PerWeek(2), "2000-01-02T23:59:59Z", "2000-01-03T00:00:00Z"},
		{core.PerWeek(2).From(utc("2000-01-02T00:00:00Z")), "2000-01-03T00:00:00Z", "2000-01-09T00:00:00Z"},
		{core.PerQuarter(2), "2000-03-31T00:00:00Z", "2000-04-01T00:00:00Z"},
		{core.PerYear(2).In(newYork), "2001-01-01T01:00:00Z", "2001-01-01T05:00:00Z"},
		{core.PerYear(2), "2000-12-31T23:59:59.999999Z", "2001-01-01T00:00:00Z"},
		{core.PerMonth(2).From(last), "2000-02-01T00:00:00Z", "2000-02-29T00:00:00Z"},
		{core.PerMonth(2).From(last), "2000-02-29T00:00:00Z", "2000-03-31T00:00:00Z"},
		{core.PerMonth(2).From(last), "2001-02-01T00:00:00Z", "2001-02-28T00:00:00Z"},
		{core.PerMonth(2).From(last.AddDate(0, 0, -1)), "2000-03-01T00:00:00Z", "2000-03-30T00:00:00Z"},
		{core.PerMonth(2).From(last.AddDate(0, 0, -2)), "2001-02-28T00:00:00Z", "2001-03-29T00:00:00Z"},
		{core.PerYear(2).From(utc("2000-02-29T06:30:00Z")), "2001-01-01T00:00:00Z", "2001-02-28T06:30:00Z"},
		{core.PerMonth(2).In(berlin).From(last), "2000-02-10T00:00:00Z", "2000-02-29T00:00:00Z"},
		{core.PerMonth(2).From(last).In(berlin), "2000-02-10T00:00:00Z", "2000-02-29T00:00:00Z"},
	} {
		t.Run(c.limit.String()+" at "+c.at, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				time.Sleep(time.Until(utc(c.at)))
				l, err := core.New(c.limit, core.Global())
				if err != nil {
					t.Fatal(err)
				}
				ask := func(want int) (d core.Decision) {
					t.Helper()
					admitted := 0
					for range want + 1 {
						if d, err = l.Allow(t.Context(), "k"); err != nil {
							t.Fatal(err)
						}
						if d.Allowed {
							admitted++
						}
					}
					if admitted != want || d.Allowed {
						t.Fatalf("%d admitted at %v, want %d", admitted, time.Now().UTC(), want)
					}
					return d
				}
				d := ask(2)
				if wait := time.Until(utc(c.next)); d.RetryAfter != wait {
					t.Fatalf("a wait of %v until %v, want %v", d.RetryAfter, time.Now().Add(d.RetryAfter).UTC(), wait)
				}
				time.Sleep(d.RetryAfter - time.Microsecond)
				ask(0)
				time.Sleep(time.Microsecond)
				ask(2)
			})
		})
	}
}

func TestCalendarMistakes(t *testing.T) {
	for want, limit := range map[string]core.Limit{
		"the time zone is nil":                   core.PerMonth(5).In(nil),
		"only hours, days and longer calendar":   core.PerMinute(5).In(time.UTC),
		"only calendar periods have an anchor":   core.PerDay(5).From(time.Now()),
		"a sliding counter cannot count":         core.PerMonth(5).With(core.SlidingCounter),
		"the refill of core.TokenBucket":         core.TokenBucket(core.PerMonth(5), 3),
		"the quota is out of range; choose 1 to": core.PerMonth(0),
		`the name "a b" is not valid; use 1 to`:  {Quota: 1, Window: 24 * time.Hour, Name: "a b"},
	} {
		if limit.Name != "" {
			limit = limit.In(time.UTC)
		}
		_, err := core.New(limit, core.Global())
		if !errors.As(err, new(*core.ConfigError)) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
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
		if _, err = core.New(l, core.Global()); err != nil {
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
