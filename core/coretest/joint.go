package coretest

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/internal/testlen"
	"github.com/sashlimit/sash/core/store"
)

// Many requests at once over two logs each, in either order: no log is over its quota, and what is denied by one log
// takes nothing from the other.
func jointConcurrently(t *testing.T, c StoreConfig) {
	s, _ := c.New(t)
	k := &crowd{direct: newDirect(t, s), name: "joint"}
	needSeveral(k.direct)
	k.user = planOfOne(testlen.Of(10, 40), time.Hour, store.Plan{})
	k.all = planOfOne(testlen.Of(60, 300), time.Hour, store.Plan{})
	k.run(32, testlen.Of(12, 60), func() int { return 1 })
	for user := range k.admitted {
		for k.take(user, 1, false) > 0 { // where takes are made one after the other, some were denied for a moment only
			continue
		}
	}
	k.checkWhole()
}

// keysOfLimits sends requests of one user and then of his colleagues: those of his that are denied by his own limit
// take nothing of the organisation's, and the response names both limits.
func keysOfLimits(t *testing.T, serve Serve) {
	header := func(name string) core.Key { return core.ByHeader(name, core.Unverified) }
	const user, organisation = 3, 100
	l, err := core.New(core.Limits{
		core.PerHour(user), core.PerHour(organisation).By(header("Organisation")), core.PerHour(1000).By(core.Global()),
	}, header("User"))
	if err != nil {
		t.Fatal(err)
	}
	send := serve(t, func() string { return text }, l)
	request := func(name, organisation string) *http.Response {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.Header.Set("User", name)
		if organisation != "" {
			r.Header.Set("Organisation", organisation)
		}
		return send(r)
	}
	count := map[int]int{}
	for range 120 {
		count[request("ann", "acme").StatusCode]++
	}
	if count[200] != user || count[429] != 120-user {
		t.Errorf("one user's requests: %v, want %d of 200 and the others 429", count, user)
	}
	first := request("colleague", "acme")
	if got, want := first.Header["Ratelimit"], `"3-per-hour";r=2;t=3600, "100-per-hour";r=96;t=`; len(got) != 1 ||
		!strings.HasPrefix(got[0], want) || !strings.Contains(got[0], `, "1000-per-hour";r=996;t=`) {
		t.Errorf("RateLimit %q, want it to begin with %s", got, want)
	}
	count = map[int]int{}
	for n := range organisation {
		r := request(fmt.Sprint("colleague", n), "acme")
		if count[r.StatusCode]++; r.StatusCode == 429 && r.Header.Get("Retry-After") == "" {
			t.Error("a denial without Retry-After")
		}
	}
	if left := organisation - user - 1; count[200] != left || count[429] != organisation-left {
		t.Errorf("the colleagues' requests: %v, want %d of 200 and the others 429", count, left)
	}
	if r := request("ann", ""); r.StatusCode != 400 {
		t.Errorf("a request without an organisation: status %d, want 400", r.StatusCode)
	}
}

// Takes that are not those of one request are errors, and record nothing.
func invalidJointQuestions(t *testing.T, c StoreConfig) {
	s, _ := c.New(t)
	needSeveral(&direct{t: t, store: s})
	plan := store.NewPlan(store.Plan{Limits: []store.Limit{{Quota: 5, Window: time.Hour}}})
	nine := make([]store.Take, store.MaxLimits+1)
	for i := range nine {
		nine[i] = store.Take{Key: store.NewKey("joint-invalid", fmt.Sprint(i)), Plan: plan, Cost: 1, ID: 1}
	}
	change := func(f func(*store.Take)) []store.Take {
		takes := slices.Clone(nine[:2])
		f(&takes[1])
		return takes
	}
	for desc, takes := range map[string][]store.Take{
		"none":         {},
		"nine limits":  nine,
		"a zero key":   change(func(t *store.Take) { t.Key = store.Key{} }),
		"no plan":      change(func(t *store.Take) { t.Plan = nil }),
		"another ID":   change(func(t *store.Take) { t.ID = 2 }),
		"another mode": change(func(t *store.Take) { t.Mode = store.ModeRecord }),
		"one key":      change(func(t *store.Take) { t.Key = store.NewKey("joint-invalid", "0") }),
	} {
		err := TakeAll(t.Context(), s, takes, make([]store.Answer, len(takes)))
		if !errors.As(err, new(*store.ConfigError)) {
			t.Errorf("%s: %v, want a ConfigError", desc, err)
		}
	}
	if err := TakeAll(t.Context(), s, nine[:2], make([]store.Answer, 1)); err == nil {
		t.Error("one answer for two takes: no error")
	}
	a, err := Take(t.Context(), s, store.Take{Key: nine[0].Key, Plan: plan, Cost: 1, ID: 3, Mode: store.ModePeek})
	if err != nil || a.State[0].Used != 0 {
		t.Errorf("%+v, %v: an invalid request has recorded units", a, err)
	}
}
