package core_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/sashlimit/sash/core"
)

func TestNewNamesEveryMistake(t *testing.T) {
	var noStore *core.MemoryStore
	_, err := core.New(
		core.Limits{
			{Quota: 0, Window: time.Second},
			{Quota: 5, Window: time.Microsecond},
			{Quota: 5, Window: time.Second, Name: `a"b`},
		},
		core.Join(core.ByHeader("a b", nil), core.Key{}, core.By[*http.Request](nil),
			core.ByValue(func(*http.Request) (string, error) { return "", nil }), core.ByValue(nil)),
		core.WithStore(noStore), core.WithName(""), core.WithName("UPPER"), core.WithHeaders(9),
		core.WithIPv4Prefix(33), core.WithIPv6Prefix(0), core.WithSecret([]byte("short")),
		core.WithCost[*http.Request](nil), core.WithSkip[*http.Request](nil), core.WithObserver(nil), nil,
		core.WithAllowList(core.ByHeader("Host", nil), "a"), core.WithBan(0, time.Nanosecond, 0),
		core.WithCostOf[*http.Request]("A", nil))
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{
		"limits(0/second): the quota is out of range; choose 1 to", "limits(5/microsecond): the window 1µs is out of",
		`the name "a\"b"`,
		`ByHeader("a b"): this is not`, `ByHeader("a b", nil)`, "Join(key 2 is empty)", "By(nil)",
		"ByValue(func(*http.Request) (string, error)): this cannot be", "ByValue(<nil>)",
		"WithStore(nil)", `WithName("")`, `WithName("UPPER")`, "WithHeaders(9)",
		"WithIPv4Prefix(33)", "WithIPv6Prefix(0)",
		"WithSecret(5 bytes)", "WithCost(nil)", "WithSkip(nil)", "WithObserver(nil)", "Option(nil)",
		`ByHeader("Host", nil): the function`, `ByHeader("Host"): net/http`, `WithCostOf("A")`, "WithCostOf(nil)",
		"WithBan(0, 1ns, 0s): the number", "WithBan(0, 1ns, 0s): the window", "WithBan(0, 1ns, 0s): the length",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the error does not say %q:\n%v", want, err)
		}
	}
	if strings.Contains(err.Error(), "short") {
		t.Error("the secret is in the message")
	}
	for line := range strings.Lines(err.Error()) {
		if !strings.HasPrefix(line, "sash: ") {
			t.Errorf("line %q does not say who speaks", line)
		}
	}
	for _, one := range configErrors(err) {
		if one.Option == "" || one.Problem == "" || one.Remedy == "" {
			t.Errorf("%+v: a field is empty", *one)
		}
	}
	if n, lines := len(configErrors(err)), strings.Count(err.Error(), "\n")+1; n != lines {
		t.Errorf("%d errors in %d lines", n, lines)
	}
}

// What LimitBy returns is checked for each call, and a policy of requests needs one.
func TestLimitBy(t *testing.T) {
	var limits core.Limits
	l := newLimiter(t, core.LimitBy(func(context.Context) core.Limits { return limits }))
	for i, c := range [][2]int{{2, 0}, {2, 1}, {2, 2}, {5, 2}, {2, 3}, {5, 3}} { // a larger plan keeps what was used
		quota, used := c[0], c[1]
		limits = core.Limits{core.PerMinute(quota)}
		d, err := l.Allow(t.Context(), "ann")
		if err != nil || d.Used != used || d.Allowed != (used < quota) || d.Policy != "dynamic" {
			t.Errorf("request %d of %d: %+v, %v; want %d used", i+1, quota, d, err, used)
		}
	}
	for _, limits = range []core.Limits{nil, {core.PerMinute(0)}, {core.PerMinute(core.MaxQuota + 1)}} {
		if d, err := l.Allow(t.Context(), "ann"); d.Allowed || !errors.As(err, new(*core.ConfigError)) {
			t.Errorf("%v: %+v, %v", limits, d, err)
		}
	}
	byRequest := newLimiter(t, core.LimitBy(func(*http.Request) core.Limits { return nil }))
	if _, err := byRequest.Allow(t.Context(), "k"); err == nil || !strings.Contains(err.Error(), "*http.Request") {
		t.Errorf("limits by request and no request: %v", err)
	}
}

// Of an option that is given twice the last one counts, unless both take effect.
func TestOptionsGivenTwice(t *testing.T) {
	cost := func(units int) core.Option { return core.WithCost(func(context.Context) int { return units }) }
	skip := func(skips bool) core.Option { return core.WithSkip(func(context.Context) bool { return skips }) }
	used := core.NewMemoryStore()
	first := newLimiterBy(t, core.PerMinute(1), core.Global(), core.WithStore(used), core.WithName("two"))
	if _, err := first.Check(from("203.0.113.9:4711")); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		one, two core.Option
		want     string // the policy, and what is decided about the second of two requests
	}{
		"WithName":      {core.WithName("one"), core.WithName("two"), "two denied"},
		"WithCost":      {cost(1), cost(0), "1-per-minute error"},
		"WithSkip":      {skip(false), skip(true), " allowed"},
		"WithStore":     {core.WithStore(core.NewMemoryStore()), core.WithStore(used), "1-per-minute denied"},
		"WithTimeout":   {core.WithTimeout(time.Second), core.WithTimeout(time.Minute), "1-per-minute denied"},
		"WithDenyCache": {core.WithDenyCache(0), core.WithDenyCache(time.Second), "1-per-minute denied"},
	} {
		l := newLimiterBy(t, core.PerMinute(1), core.Global(), test.one, test.two)
		l.Check(from("203.0.113.9:4711"))
		d, err := l.Check(from("203.0.113.9:4711"))
		got := "allowed"
		switch {
		case err != nil:
			d.Policy, got = "1-per-minute", "error"
		case !d.Allowed:
			got = "denied"
		}
		if got = d.Policy + " " + got; got != test.want {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
	list := core.WithAllowList(core.ByIP(), "192.0.2.1")
	heard := 0
	observer := core.WithObserver(func(context.Context, core.Event) { heard++ })
	l := newLimiterBy(t, core.PerMinute(1), core.ByIP(), list, list, observer, observer)
	if l.Allow(t.Context(), "192.0.2.7"); heard != 2 {
		t.Errorf("%d observers were called, want 2", heard)
	}
}
