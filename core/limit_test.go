package core_test

import (
	"errors"
	"strings"
	"testing"
	"time"
	_ "time/tzdata" // the machine may have none, or old ones

	"github.com/sashlimit/sash/core"
)

// A limit is read from its text, and what it prints is read back.
func TestParseLimit(t *testing.T) {
	window := func(quota int, window time.Duration) core.Limit { return core.Limit{Quota: quota, Window: window} }
	for text, want := range map[string]core.Limit{
		"100/minute": core.PerMinute(100), "1 per second": core.PerSecond(1), "7/h": core.PerHour(7),
		"5/min": core.PerMinute(5), "5/sec": core.PerSecond(5), "5/hr": core.PerHour(5), "7 per day": core.PerDay(7),
		"10 per 5m": window(10, 5*time.Minute), "5/10s": window(5, 10*time.Second), "5/ 10s": window(5, 10*time.Second),
		"5 per 30 mins": window(5, 30*time.Minute), "5/30 secs": window(5, 30*time.Second),
		"5/2hrs": window(5, 2*time.Hour), "20 per 2 hours": window(20, 2*time.Hour),
		"20/1m30s": window(20, 90*time.Second), "20/1.5s": window(20, 1500*time.Millisecond),
		"1/1ms": window(1, time.Millisecond), "1000000000/365d": window(1_000_000_000, 365*24*time.Hour),
		"1/1500us":              window(1, 1500*time.Microsecond),
		"10/second burst 50":    core.TokenBucket(core.PerSecond(10), 50),
		"1/day burst 365":       core.TokenBucket(core.PerDay(1), 365),
		"10 per 5m burst 1":     core.TokenBucket(window(10, 5*time.Minute), 1),
		" 10/second  burst  7 ": core.TokenBucket(core.PerSecond(10), 7),
		"4 in flight":           core.InFlight(4),
		" 12  in flight ":       core.InFlight(12),
	} {
		got, err := core.ParseLimit(text)
		if err != nil || got != want {
			t.Errorf("ParseLimit(%q) = %v, %v; want %v", text, got, err, want)
		}
		if again, err := core.ParseLimit(got.String()); err != nil || again != got {
			t.Errorf("%q, printed %q: %v, %v", text, got, again, err)
		}
	}
}

// Limits of calendar periods print what In and From have made of them, and read as that.
func TestParseCalendarLimits(t *testing.T) {
	berlin, err := time.LoadLocation("Europe/Berlin")
	must(t, err)
	sunday, last := time.Date(2000, 1, 2, 0, 0, 0, 0, time.UTC), time.Date(2000, 1, 31, 0, 0, 0, 0, berlin)
	for text, limit := range map[string]core.Limit{
		"5/hour in Europe/Berlin":          core.PerHour(5).In(berlin),
		"5/day in Europe/Berlin":           core.PerDay(5).In(berlin),
		"7/week":                           core.PerWeek(7),
		"7/week in UTC from Sunday":        core.PerWeek(7).From(sunday),
		"7/month in Europe/Berlin from 31": core.PerMonth(7).In(berlin).From(last),
		"8/month in Europe/Berlin from 31": core.PerMonth(8).From(last).In(berlin),
		"1/quarter":                        core.PerQuarter(1),
		"2/year in Europe/Berlin":          core.PerYear(2).In(berlin),
	} {
		for _, text := range []string{text, strings.Replace(text, "/", " per ", 1)} {
			if read, err := core.ParseLimit(text); err != nil || read.String() != limit.String() {
				t.Errorf("%q became %v, %v; want %v", text, read, err, limit)
			}
		}
		if limit.String() != text {
			t.Errorf("%v, want %s", limit, text)
		}
		newLimiter(t, limit)
	}
}

// Where only the zone is wrong, or the beginning, the window is not blamed.
func TestParseLimitMistakes(t *testing.T) {
	wrong := map[string]string{
		"10/month in Berlin": `unknown time zone Berlin; write a name such as "Europe/Berlin" or "UTC"; if this ` +
			`machine lacks the zone, import _ "time/tzdata"`,
		"10 per day in Nowhere":       `unknown time zone Nowhere; write a name such as "Europe/Berlin" or "UTC"`,
		"10/month in":                 `there is no window "month in"; write second`,
		"10/month in UTC from Sunday": `a month does not begin at "Sunday"; write a day, such as "31" or "31 09:30"`,
		"10/moon in Europe/Berlin":    `there is no window "moon in Europe/Berlin"; write second`,
		"5/day in Atlantis":           "unknown time zone Atlantis",
		"5/minute in UTC":             `there is no window "minute in UTC"; write second`,
		"5/month burst 3":             "the refill of core.TokenBucket is not a rate",
		"5/month in UTC from 32":      `a month does not begin at "32"; write a day`,

		"10/second burst": `there is no window "second burst"`, "10/second burst ": `the burst "" is not`,
		"10/second burst x": `the burst "x" is not`, "10/second burst -1": `the burst "-1" is not`,
		"10/second burst +1": `the burst "+1" is not`, "10/second burst 1e30": `the burst "1e30" is not`,
		"10/second burst 0": "the burst 0 is out of range", "10/second burst 1000000001": "the burst 1000000001 is out",
		"10/second burst 5 burst 5": `the burst "5 burst 5" is not`, "4 in flight burst 5": `the burst "5" is not`,
		"1/day burst 366": "an empty bucket of 366 takes longer than 365d to fill",
		"burst 5":         "there is no window; write a quota and a window",
	}
	for _, text := range []string{
		"", "/", "100", "100/", "/minute", "10/0 minute", "0/minute", "1.5/minute", "-1/s", "+1/s", "1/-1s", "1/+1s",
		"100/minute/", "100//minute", "100/minute,", "100/minute ;", "100 per", "per minute", "100perminute",
		"1e3/s", "0x10/s", "١/minute", "1/fortnight", "1/0s", "1/0.1ms", "1/1ns", "1/366d", "1/99999999999999999999d",
		"99999999999999999999/s", "1000000001/s", "1/1.0000001s", "1/minutes5", "1/5 5m", "1/\x00", "1/m\n2/s",
		"in flight", " in flight", "0 in flight", "-1 in flight", "4 in flight for 2m", "4in flight",
	} {
		wrong[text] = ""
	}
	for text, want := range wrong {
		got, err := core.ParseLimit(text)
		var config *core.ConfigError
		if !errors.As(err, &config) || got != (core.Limit{}) || config.Problem == "" || config.Remedy == "" ||
			!strings.HasPrefix(config.Problem+"; "+config.Remedy, want) ||
			!strings.HasPrefix(err.Error(), "sash: ParseLimit(") {
			t.Errorf("ParseLimit(%q) = %v, %v; want a ConfigError with %q", text, got, err, want)
		}
	}
}

// What a limit prints can be read back, and whatever is read is a valid policy.
func FuzzParseLimit(f *testing.F) {
	for _, s := range []string{"100/minute", "10 per 5m", "5/10s", "1/1.5s", "20 per 2 hours", "10/0 minute", "-1/s"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		l, err := core.ParseLimit(s)
		if err != nil {
			return
		}
		again, err := core.ParseLimit(l.String())
		if err != nil || again != l {
			t.Errorf("%q is %v, which reads as %v, %v", s, l, again, err)
		}
		newLimiter(t, l) // which takes it
	})
}

func TestDefaultNames(t *testing.T) {
	for _, c := range []struct {
		limit core.Limit
		name  string
	}{
		{core.PerSecond(10), "10-per-second"},
		{core.PerMinute(100), "100-per-minute"},
		{core.PerHour(1000), "1000-per-hour"},
		{core.PerDay(1), "1-per-day"},
		{core.Limit{Quota: 5, Window: 10 * time.Second}, "5-per-10s"},
		{core.Limit{Quota: 5, Window: 90 * time.Minute}, "5-per-90m"},
		{core.Limit{Quota: 5, Window: 1500 * time.Millisecond}, "5-per-1500ms"},
		{core.Limit{Quota: 5, Window: 1001 * time.Microsecond}, "5-per-1001us"},
		{core.Limit{Quota: 5, Window: core.MaxWindow}, "5-per-365d"},
	} {
		l := newLimiter(t, c.limit)
		d, err := l.AllowN(t.Context(), "k", c.limit.Quota)
		if err != nil || d.Policy != c.name {
			t.Errorf("%v: policy %q, %v; want %q", c.limit, d.Policy, err, c.name)
		}
		d, _ = l.Allow(t.Context(), "k")
		if len(d.Violated) != 1 || d.Violated[0] != c.name {
			t.Errorf("%v: violated %q, want %q", c.limit, d.Violated, c.name)
		}
	}
}
