package core_test

import (
	"encoding/json"
	"errors"
	"log/slog"
	"maps"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/adapter"
)

// The fields are exact to the byte for given states of the log.
func TestHeaderVectors(t *testing.T) {
	var file struct {
		Vectors []struct {
			ID     string
			Limits []struct {
				Name   string
				Quota  int
				Window int `json:"window_ms"`
			}
			Ages []int `json:"entries_age_ms"`
			Cost int
			Want struct {
				Status   int
				Headers  map[string]string
				Violated []string `json:"violated-policies"`
				Retry    int      `json:"retry_after_ms"`
			}
		}
	}
	vectors, err := os.ReadFile("testdata/headers.json")
	must(t, err)
	if err := json.Unmarshal(vectors, &file); err != nil || len(file.Vectors) == 0 {
		t.Fatalf("%d vectors, %v", len(file.Vectors), err)
	}
	const ms = time.Millisecond
	for _, v := range file.Vectors {
		inBubble(t, v.ID, func(t *testing.T) {
			var limits core.Limits
			for _, l := range v.Limits {
				limits = append(limits, core.Limit{Name: l.Name, Quota: l.Quota, Window: time.Duration(l.Window) * ms})
			}
			l := newLimiter(t, limits)
			slices.Sort(v.Ages)
			for i, age := range slices.Backward(v.Ages) {
				_, err := l.Record(t.Context(), "k", 1)
				must(t, err)
				if i > 0 {
					age -= v.Ages[i-1]
				}
				time.Sleep(time.Duration(age) * ms)
			}
			d, err := l.AllowN(t.Context(), "k", v.Cost)
			if !errors.Is(err, core.ErrCostExceedsQuota) {
				must(t, err)
			}
			got, want := make(http.Header), make(http.Header)
			d.SetHeaders(got)
			for name, value := range v.Want.Headers {
				want.Set(name, value)
			}
			if !d.Allowed {
				want.Set("Cache-Control", "no-store")
			}
			if !maps.EqualFunc(got, want, slices.Equal) || d.Allowed != (v.Want.Status == http.StatusOK) ||
				!slices.Equal(d.Violated, v.Want.Violated) || d.RetryAfter != time.Duration(v.Want.Retry)*ms {
				t.Errorf("%v\n%v; want\n%v and %+v", d, got, want, v.Want)
			}
		})
	}
}

// Behind an outer limiter, an inner one adds its fields of the draft. The fields of X-RateLimit are those of the one
// with less left, and of the outer one if both have as many left. A denial leaves no field that contradicts it.
func TestFieldsOfTwoLimiters(t *testing.T) {
	const outer, inner = `"9-per-hour";q=9;w=3600`, `"3-per-minute";q=3;w=60`
	legacy := core.HeadersLegacy
	for _, c := range []struct {
		desc         string
		outer, inner core.Limit
		style        [2]core.Headers
		nth          int // request, of which these are the fields
		want         map[string]string
	}{
		{"none", core.PerHour(9), core.PerMinute(3), [2]core.Headers{core.HeadersNone, core.HeadersNone}, 1, nil},
		{"denied", core.PerHour(9), core.PerMinute(3), [2]core.Headers{}, 4, map[string]string{
			"RateLimit-Policy": outer + ", " + inner, "RateLimit": `"3-per-minute";r=0;t=60`,
			"Retry-After": "60", "Cache-Control": "no-store",
		}},
		{"denied, with other fields", core.PerHour(9), core.PerMinute(3), [2]core.Headers{0, legacy}, 4,
			map[string]string{
				"RateLimit-Policy":  outer,
				"X-RateLimit-Limit": "3", "X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "60",
				"Retry-After": "60", "Cache-Control": "no-store",
			}},
		{"in flight", core.PerHour(9), core.InFlight(1), [2]core.Headers{legacy, legacy}, 1,
			map[string]string{"X-RateLimit-Limit": "1", "X-RateLimit-Remaining": "0"}},
		{"denied in flight", core.PerHour(9), core.InFlight(2), [2]core.Headers{0, core.HeadersBoth}, 3,
			map[string]string{
				"RateLimit-Policy": outer + `, "2-in-flight";q=2;qu="concurrent-requests"`,
				"RateLimit":        `"2-in-flight";r=0`, "Cache-Control": "no-store",
				"X-RateLimit-Limit": "2", "X-RateLimit-Remaining": "0",
			}},
		{"the inner has less", core.PerMinute(4), core.PerHour(3), [2]core.Headers{legacy, legacy}, 1,
			map[string]string{"X-RateLimit-Limit": "3", "X-RateLimit-Remaining": "2", "X-RateLimit-Reset": "3600"}},
		{"both have the same", core.PerMinute(3), core.PerHour(3), [2]core.Headers{legacy, legacy}, 1,
			map[string]string{"X-RateLimit-Limit": "3", "X-RateLimit-Remaining": "2", "X-RateLimit-Reset": "60"}},
		{"the outer has less", core.PerMinute(3), core.PerHour(4), [2]core.Headers{legacy, legacy}, 1,
			map[string]string{"X-RateLimit-Limit": "3", "X-RateLimit-Remaining": "2", "X-RateLimit-Reset": "60"}},
	} {
		inBubble(t, c.desc, func(t *testing.T) {
			limiters := []*core.Limiter{
				newLimiter(t, c.outer, core.WithHeaders(c.style[0])),
				newLimiter(t, c.inner, core.WithHeaders(c.style[1])),
			}
			var got http.Header
			for range c.nth {
				got = make(http.Header)
				for _, l := range limiters {
					d, err := l.Allow(t.Context(), "k")
					must(t, err)
					d.SetHeaders(got)
				}
			}
			want := make(http.Header)
			for name, value := range c.want {
				want.Set(name, value)
			}
			if !maps.EqualFunc(got, want, slices.Equal) {
				t.Errorf("%v, want %v", got, want)
			}
		})
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
	synctest.Test(t, func(t *testing.T) {
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
	})
}

// A limiter that exists is answered in another way by what an adapter gives it. What a function sets in the header of
// an adapter has no line breaks.
func TestHeadersOfAdapters(t *testing.T) {
	l := newLimiterBy(t, core.PerHour(9), core.ByIP(), core.WithHeaders(core.HeadersLegacy))
	for _, c := range []struct {
		given []core.Option
		want  []string
	}{
		{nil, []string{"X-Ratelimit-Limit", "X-Ratelimit-Remaining", "X-Ratelimit-Reset"}},
		{[]core.Option{core.WithHeaders(core.HeadersDraft)}, []string{"Ratelimit", "Ratelimit-Policy"}},
		{[]core.Option{core.WithHeaders(core.HeadersNone), core.WithHeadersFunc(
			func(_ core.Decision, h adapter.HeaderMap) { h.Set("mine", "1\r\n2") })}, []string{"Mine"}},
	} {
		other, err := l.Inside().Answering(c.given)
		must(t, err)
		d, err := other.Check(from("192.0.2.1:1"))
		must(t, err)
		h := make(http.Header)
		d.SetHeaders(struct{ http.Header }{h})
		if got := slices.Sorted(maps.Keys(h)); !slices.Equal(got, c.want) || strings.Contains(h.Get("Mine"), "\n") {
			t.Errorf("%q, want %v", h, c.want)
		}
	}
}
