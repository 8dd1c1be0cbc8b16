package core_test

import (
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/adapter"
)

// Of two limiters, the fields of X-RateLimit are those of the one with less left, and of the outer one if both have as
// many left.
func TestLegacyFieldsOfTwoLimiters(t *testing.T) {
	for _, c := range []struct {
		outer, inner       core.Limit
		limit, left, reset string
	}{
		{core.PerMinute(4), core.PerHour(3), "3", "2", "3600"},
		{core.PerMinute(3), core.PerHour(3), "3", "2", "60"},
		{core.PerMinute(3), core.PerHour(4), "3", "2", "60"},
	} {
		h := make(http.Header)
		for _, limit := range []core.Limit{c.outer, c.inner} {
			l := newLimiterBy(t, limit, core.Global(), core.WithHeaders(core.HeadersLegacy))
			d := checkOnce(t, l, from("192.0.2.1:1"), true)
			d.SetHeaders(h)
			d.Serve(func() int { return http.StatusOK })
		}
		got := [...]string{
			h.Get("X-RateLimit-Limit"), h.Get("X-RateLimit-Remaining"), h.Get("X-RateLimit-Reset"),
		}
		if want := [...]string{c.limit, c.left, c.reset}; got != want {
			t.Errorf("%v and %v: %v, want %v", c.outer, c.inner, got, want)
		}
	}
}

// byUnit returns the fields of HeadersByUnit, without the beginning that all of them have.
func byUnit(h http.Header) map[string]string {
	fields := make(map[string]string)
	for name := range h {
		if rest, ok := strings.CutPrefix(strings.ToLower(name), "x-ratelimit-"); ok {
			fields[rest] = h.Get(name)
		}
	}
	return fields
}

func TestHeadersByUnit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cost := core.WithCostOf("tokens", func(r *http.Request) int {
			n, _ := strconv.Atoi(r.Header.Get("Tokens"))
			return n
		})
		style := core.WithHeaders(core.HeadersByUnit)
		outer := newLimiterBy(t, core.Limits{
			core.PerMinute(60), core.PerHour(1000), core.PerMinute(900).Of("tokens"), core.PerHour(1000).Of("tokens"),
		}, core.Global(), style, cost)
		inner := newLimiterBy(t, core.Limits{core.PerMinute(500).Of("tokens"), core.InFlight(1)}, core.Global(), style,
			cost)
		for i, step := range []struct {
			tokens  string
			allowed bool
			want    map[string]string
		}{
			{"100", true, map[string]string{
				"limit-requests": "60", "remaining-requests": "59", "reset-requests": "1m0s",
				"limit-tokens": "500", "remaining-tokens": "400", "reset-tokens": "1m0s",
				"limit-concurrent-requests": "1", "remaining-concurrent-requests": "0",
			}},
			{"401", false, map[string]string{ // by the inner limiter, whose fields replace those of the outer one
				"limit-requests": "60", "remaining-requests": "58", "reset-requests": "59.501s",
				"limit-tokens": "500", "remaining-tokens": "400", "reset-tokens": "59.501s",
				"limit-concurrent-requests": "1", "remaining-concurrent-requests": "1",
			}},
		} {
			h := make(http.Header)
			for n, l := range []*core.Limiter{outer, inner} {
				d, err := l.Check(from("192.0.2.1:1", "Tokens", step.tokens))
				if err != nil || d.Allowed != (step.allowed || n == 0) {
					t.Fatal(d, err)
				}
				d.SetHeaders(h)
				if d.Allowed {
					d.Serve(func() int { return http.StatusOK })
				}
			}
			if got := byUnit(h); !maps.Equal(got, step.want) || h.Get("RateLimit") != "" {
				t.Errorf("request %d: %v, want %v", i+1, h, step.want)
			}
			time.Sleep(500*time.Millisecond - 300*time.Microsecond) // times are rounded up to milliseconds
		}
	})
}

// The function is called after the other fields were set, for all requests that a limit, a ban or an override has
// decided about, and may change them. It panics without effect.
func TestWithHeadersFunc(t *testing.T) {
	var got []core.Decision
	var text strings.Builder
	before := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(&text, nil)))
	defer slog.SetDefault(before)
	l := newLimiterBy(t, core.PerHour(1), core.ByIP(), core.WithBan(1, time.Minute, time.Minute),
		core.WithSkip(func(r *http.Request) bool { return r.Method == http.MethodHead }),
		core.WithHeadersFunc(func(d core.Decision, h adapter.HeaderMap) {
			got = append(got, d)
			h.Set("X-Policy", h.Get("RateLimit-Policy"))
			h.Set("RateLimit-Policy", "mine")
			panic("boom")
		}))
	for i, want := range []http.Header{
		{
			"Ratelimit": {`"1-per-hour";r=0;t=3600`}, "Ratelimit-Policy": {"mine"},
			"X-Policy": {`"1-per-hour";q=1;w=3600`},
		},
		{"Ratelimit-Policy": {"mine"}, "X-Policy": {""}, "Retry-After": {"60"}, "Cache-Control": {"no-store"}},
		{},
	} {
		h := make(http.Header)
		r := from("192.0.2.1:1")
		if i == 2 {
			r.Method = http.MethodHead
		}
		d, err := l.Check(r)
		must(t, err)
		d.SetHeaders(h)
		if !maps.EqualFunc(h, want, slices.Equal) {
			t.Errorf("request %d: %v, want %v", i+1, h, want)
		}
		if len(got) != min(i+1, 2) || i < 2 && got[i].Allowed != d.Allowed {
			t.Errorf("request %d: called with %v", i+1, got)
		}
	}
	if n := strings.Count(text.String(), "the function given to WithHeadersFunc has panicked"); n != 1 {
		t.Errorf("logged %q", &text)
	}
}

// A limiter that exists is answered in another way by what an adapter gives it.
func TestHeadersOfAdapters(t *testing.T) {
	l := newLimiterBy(t, core.PerHour(9), core.ByIP(), core.WithHeaders(core.HeadersLegacy))
	for _, c := range []struct {
		given []core.Option
		want  []string
	}{
		{nil, []string{"X-Ratelimit-Limit", "X-Ratelimit-Remaining", "X-Ratelimit-Reset"}},
		{[]core.Option{core.WithHeaders(core.HeadersDraft)}, []string{"Ratelimit", "Ratelimit-Policy"}},
		{[]core.Option{core.WithHeaders(core.HeadersNone), core.WithHeadersFunc(
			func(_ core.Decision, h adapter.HeaderMap) { h.Set("Mine", "1") })}, []string{"Mine"}},
	} {
		other, err := l.Inside().Answering(c.given)
		must(t, err)
		d, err := other.Check(from("192.0.2.1:1"))
		must(t, err)
		h := make(http.Header)
		d.SetHeaders(h)
		if got := slices.Sorted(maps.Keys(h)); !slices.Equal(got, c.want) {
			t.Errorf("%v, want %v", got, c.want)
		}
	}
}
