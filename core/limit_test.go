package core_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/sashlimit/sash/core"
)

func TestParseLimit(t *testing.T) {
	for _, c := range []struct {
		text string
		want core.Limit
	}{
		{"100/minute", core.PerMinute(100)},
		{"10 per 5m", core.Limit{Quota: 10, Window: 5 * time.Minute}},
		{"5/10s", core.Limit{Quota: 5, Window: 10 * time.Second}},
		{"5/ 10s", core.Limit{Quota: 5, Window: 10 * time.Second}},
		{"1 per second", core.PerSecond(1)},
		{"7/h", core.PerHour(7)},
		{"5/min", core.PerMinute(5)},
		{"5 per 30 mins", core.Limit{Quota: 5, Window: 30 * time.Minute}},
		{"5/sec", core.PerSecond(5)},
		{"5/30 secs", core.Limit{Quota: 5, Window: 30 * time.Second}},
		{"5/hr", core.PerHour(5)},
		{"5/2hrs", core.Limit{Quota: 5, Window: 2 * time.Hour}},
		{"7 per day", core.PerDay(7)},
		{"20 per 2 hours", core.Limit{Quota: 20, Window: 2 * time.Hour}},
		{"20/1m30s", core.Limit{Quota: 20, Window: 90 * time.Second}},
		{"20/1.5s", core.Limit{Quota: 20, Window: 1500 * time.Millisecond}},
		{"1/1ms", core.Limit{Quota: 1, Window: time.Millisecond}},
		{"1000000000/365d", core.Limit{Quota: 1_000_000_000, Window: 365 * 24 * time.Hour}},
		{"1/1500us", core.Limit{Quota: 1, Window: 1500 * time.Microsecond}},
	} {
		got, err := core.ParseLimit(c.text)
		if err != nil || got != c.want {
			t.Errorf("ParseLimit(%q) = %v, %v; want %v", c.text, got, err, c.want)
		}
	}
	for _, text := range []string{
		"", "/", "100", "100/", "/minute", "10/0 minute", "0/minute", "1.5/minute", "-1/s", "+1/s", "1/-1s", "1/+1s",
		"100/minute/", "100//minute", "100/minute,", "100/minute ;", "100 per", "per minute", "100perminute",
		"1e3/s", "0x10/s",
		"١/minute", "1/fortnight", "1/0s", "1/0.1ms", "1/1ns", "1/366d", "1/99999999999999999999d",
		"99999999999999999999/s",
		"1000000001/s", "1/1.0000001s", "1/minutes5", "1/5 5m", "1/\x00", "1/m\n2/s",
	} {
		got, err := core.ParseLimit(text)
		var config *core.ConfigError
		if !errors.As(err, &config) || got != (core.Limit{}) {
			t.Errorf("ParseLimit(%q) = %v, %v; want a ConfigError", text, got, err)
		} else if config.Problem == "" || config.Remedy == "" || !strings.HasPrefix(err.Error(), "sash: ParseLimit(") {
			t.Errorf("ParseLimit(%q): message %q", text, err)
		}
	}
}

// Where only the zone is wrong, or the beginning, the window is not blamed.
func TestParseLimitOfACalendar(t *testing.T) {
	for text, want := range map[string]string{
		"10/month in Berlin": `unknown time zone Berlin; write a name such as "Europe/Berlin" or "UTC"; if this ` +
			`machine lacks the zone, import _ "time/tzdata"`,
		"10 per day in Nowhere":       `unknown time zone Nowhere; write a name such as "Europe/Berlin" or "UTC"`,
		"10/month in":                 `there is no window "month in"; write second`,
		"10/month in UTC from Sunday": `a month does not begin at "Sunday"; write a day, such as "31" or "31 09:30"`,
		"10/moon in Europe/Berlin":    `there is no window "moon in Europe/Berlin"; write second`,
	} {
		var config *core.ConfigError
		if _, err := core.ParseLimit(text); !errors.As(err, &config) ||
			!strings.HasPrefix(config.Problem+"; "+config.Remedy, want) {
			t.Errorf("ParseLimit(%q): %v, want %s", text, err, want)
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
		if _, err := core.New(l, core.ByText()); err != nil {
			t.Errorf("%q is accepted by ParseLimit and not by New: %v", s, err)
		}
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
		l, err := core.New(c.limit, core.ByText())
		if err != nil {
			t.Fatal(err)
		}
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
