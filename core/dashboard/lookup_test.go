package dashboard_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/adapter"
	"github.com/sashlimit/sash/core/dashboard"
	"github.com/sashlimit/sash/nethttp"
)

// requests sends requests of a user and a team through a limiter.
func requests(l *core.Limiter, n int, user, team string) {
	h := nethttp.From(l)(http.NotFoundHandler())
	for range n {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.Header.Set("User", user)
		r.Header.Set("Team", team)
		h.ServeHTTP(httptest.NewRecorder(), r)
	}
}

// What the page cannot know about a key it does not tell: a key that no text names, and limits that requests choose.
func TestLookUpOfTheUnknown(t *testing.T) {
	user, team := core.ByHeader("User", core.Unverified), core.ByHeader("Team", core.Unverified)
	token := core.KeyOf("jwt", func(r adapter.Request) (scope, text string, err error) {
		return "sub", r.Header("User")[0], nil
	})
	plan := core.LimitBy(func(r *http.Request) core.Limits {
		if r.Header.Get("User") == "ann" {
			return core.Limits{core.PerMinute(60)}
		}
		return core.Limits{core.PerMinute(3)}
	})
	planOf := core.LimitBy(func(context.Context) core.Limits { return core.Limits{core.PerMinute(3)} })
	for name, test := range map[string]struct {
		policy core.Policy
		key    core.Key
		text   string
		want   string // in the error, or empty: 18 of 60 units
	}{
		"a header":     {core.PerMinute(60), user, "ann", ""},
		"everybody":    {core.PerMinute(60), core.Global(), "", ""},
		"a joined key": {core.PerMinute(60), core.Join(user, team), "ann", "Join finds no such key"},
		"a token":      {core.PerMinute(60), token, "ann", "jwt finds no such key"},
		"a token or an address": {
			core.PerMinute(60), core.First(token, core.ByIP()), "ann", "First finds no such key",
		},
		"LimitBy of the request": {plan, user, "ann", "the limits are not known here"},
		"LimitBy of the context": {planOf, user, "ann", "the limits are not known here"},
		"no text":                {core.PerMinute(60), user, "", "enter the name of a key"},
	} {
		var board dashboard.Board
		l := newLimiter(t, test.policy, test.key, core.WithName("p"), core.WithObserver(board.Observe))
		board.Add(l)
		requests(l, 18, "ann", "blue")
		h := dashboard.Handler(&board, dashboard.WithActions(anybody))
		question := fmt.Sprintf(`{"policy":"p","key":%q}`, test.text)
		if test.want == "" {
			if w := ask(t, h, question); len(w.Limits) != 1 || w.Limits[0].Used != 18 || w.Limits[0].Quota != 60 {
				t.Errorf("%s: %+v", name, w)
			}
			continue
		}
		w := serve(t, h, http.MethodPost, "/window", question)
		if w.Code < 400 || w.Code >= 500 || !strings.Contains(w.Body.String(), test.want) {
			t.Errorf("%s: %d %s", name, w.Code, w.Body)
		}
	}
}

// A callback that needs the context of its own requests is an error that the page shows, without what it may have of a
// client.
func TestCallbackPanics(t *testing.T) {
	type tenant struct{}
	for want, panics := range map[string]func(context.Context) (string, error){
		"not string": func(ctx context.Context) (string, error) { return ctx.Value(tenant{}).(string), nil },
		"*errors.errorString": func(context.Context) (string, error) {
			panic(errors.New("no tenant of ann")) //nolint:err113 // a user's
		},
	} {
		var board dashboard.Board
		l := newLimiter(t, core.Limits{core.PerMinute(60), core.PerDay(900).By(core.By(panics))}, core.ByIP(),
			core.WithName("p"))
		board.Add(l)
		h := dashboard.Handler(&board, dashboard.WithActions(anybody))
		w := serve(t, h, http.MethodPost, "/window", `{"policy":"p","key":"192.0.2.1"}`)
		if w.Code != http.StatusInternalServerError || !strings.Contains(w.Body.String(), "a callback panicked") ||
			!strings.Contains(w.Body.String(), want) || strings.Contains(w.Body.String(), "ann") {
			t.Errorf("%d %s, want %s", w.Code, w.Body, want)
		}
	}
}

// An override of a calendar's period has the zone and the beginning of the limit that it replaces, unless it says
// others.
func TestOverrideKeepsTheCalendar(t *testing.T) {
	var limits core.Limits
	for _, text := range []string{
		"60/month in Europe/Berlin from 15", "60 tokens/month in Asia/Tokyo", "9/day in Europe/Berlin", "30/minute",
		"500/year",
	} {
		l, err := core.ParseLimit(text)
		if err != nil {
			t.Fatal(err)
		}
		limits = append(limits, l)
	}
	var board dashboard.Board
	l := newLimiter(t, limits, core.ByIP(), core.WithName("p"), core.WithOverrides(),
		core.WithCostOf("tokens", func(context.Context) int { return 1 }))
	board.Add(l)
	h := dashboard.Handler(&board, dashboard.WithActions(anybody), dashboard.WithIdentities())
	for given, want := range map[string]string{
		"1000/month":                      "1000/month in Europe/Berlin from 15",
		"1000 per month":                  "1000/month in Europe/Berlin from 15",
		"1000 tokens/month":               "1000 tokens/month in Asia/Tokyo",
		"1000/month, 1000 tokens/month":   "1000/month in Europe/Berlin from 15, 1000 tokens/month in Asia/Tokyo",
		"1000/month in UTC":               "1000/month",
		"1000/month in UTC from 3":        "1000/month in UTC from 3",
		"1000/day":                        "1000/day in Europe/Berlin",
		"1000/hour, 70/minute, 5000/year": "1000/hour, 70/minute, 5000/year",
	} {
		question := fmt.Sprintf(
			`{"policy":"p","name":"p","key":"192.0.2.7","kind":"limits","limits":%q,"for":"1h"}`, given)
		w := serve(t, h, http.MethodPost, "/override", question)
		all, err := l.Overrides(t.Context())
		if w.Code != http.StatusNoContent || err != nil || len(all) != 1 {
			t.Errorf("%s: %d %s, %v", given, w.Code, w.Body, err)
			continue
		}
		var got []string
		for _, limit := range all[0].Limits {
			got = append(got, limit.String())
		}
		if got := strings.Join(got, ", "); got != want {
			t.Errorf("%s: %s, want %s", given, got, want)
		}
	}
}
