package engine_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sashlimit/sash/core/internal/engine"
	"github.com/sashlimit/sash/core/internal/keys"
	"github.com/sashlimit/sash/core/store"
)

func overriding(c *engine.Config) { c.Overrides = true }

func pause(d time.Duration) *engine.Override {
	return &engine.Override{Denied: true, Pause: true, Until: time.Now().Add(d)}
}

func inAnHour() time.Time { return time.Now().Add(time.Hour) }

// TestOverrides replaces the limits of a key and its units, of the own key and of By; what was used stays used.
func TestOverrides(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEngine(t, overriding)
		s := compile(t, e, "2/minute", "10 tokens/minute", "3/minute by org", "9 in flight")
		keysOf := e.OverrideKeys(s)
		if len(keysOf) != 2 || keysOf[0].Name != "test" || keysOf[1].Name != "test/3-per-minute" {
			t.Fatalf("keys of overrides: %v", keysOf)
		}
		ask := func(user string) *engine.Result {
			a := &engine.Ask{Identities: identities(s, user, "o"), Cost: 1}
			a.Costs = costs(s, 1, 1)
			return allow(t, e, s, a)
		}
		set := func(k int, id store.Identity, o *engine.Override) {
			t.Helper()
			o.Until = inAnHour()
			if err := e.SetOverride(t.Context(), keysOf[k], id, id.Text, o); err != nil {
				t.Fatal(err)
			}
		}
		org := store.Identity{Kind: "hdr", Scope: "org", Text: "o"}
		ask("a")
		ask("a")
		if r := ask("a"); r.Allowed || r.Override != nil {
			t.Fatal("the quota is not used up")
		}
		set(0, text("a"), &engine.Override{Limits: limits(t, "5/minute", "5/hour")})
		r := ask("a")
		if !r.Allowed || r.Override == nil || r.State(slices.Index(r.Set.Names, "5-per-minute")).Used != 2 {
			t.Errorf("with a larger quota: %v, %v", r.Allowed, r.Set.Names)
		}
		if want := []string{"10-tokens-per-minute", "3-per-minute", "9-in-flight", "5-per-minute",
			"5-per-hour"}; !slices.Equal(r.Set.Names, want) {
			t.Errorf("limits %v", r.Set.Names)
		}
		if r = ask("b"); r.Allowed || r.Override != nil || !slices.Equal(r.Denying(), []string{"3-per-minute"}) {
			t.Errorf("another user: %v, %v", r.Allowed, r.Denying())
		}
		set(1, org, &engine.Override{Unlimited: true}) // both apply
		if r = ask("a"); !r.Allowed || len(r.Set.Names) != 5 || strings.Contains(r.Set.Header, `"3-per-minute"`) ||
			r.State(1).Told {
			t.Errorf("unlimited by the organisation: %v, %s", r.Allowed, r.Set.Header)
		}
		if r = ask("a"); !r.Allowed || r.State(3).Left != 0 {
			t.Errorf("the last unit of the larger quota: %v, left %d", r.Allowed, r.State(3).Left)
		}
		if r = ask("a"); r.Allowed || !slices.Equal(r.Denying(), []string{"5-per-minute"}) {
			t.Errorf("the larger quota: %v, %v", r.Allowed, r.Denying())
		}
		set(0, text("c"), &engine.Override{Denied: true})
		set(1, org, &engine.Override{Denied: true})
		time.Sleep(time.Minute)
		r = ask("c")
		if r.Allowed || r.Cause != engine.ByOverride || r.Retry != 59*time.Minute || r.Never ||
			*r.Identity() != text("c") {
			t.Errorf("denied: %v, %v, retry %v", r.Allowed, r.Cause, r.Retry)
		}
		if err := e.RemoveOverride(t.Context(), keysOf[1], org); err != nil {
			t.Fatal(err)
		}
		if r = ask("d"); !r.Allowed || r.Override != nil {
			t.Errorf("after the override: %v, %v", r.Cause, r.Denying())
		}
		all, err := e.Overrides(t.Context())
		if err != nil || len(all) != 2 || all[0].Key != "a" || !all[0].IsOf(keysOf[0]) || all[0].IsOf(keysOf[1]) {
			t.Errorf("overrides %v, %v", all, err)
		}
		if n := e.Stats().Overrides; n != 2 {
			t.Errorf("%d overrides are in force", n)
		}
		if err = e.RemoveOverrideByID(t.Context(), all[0].ID); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		if all, err = e.Overrides(t.Context()); err != nil || len(all) != 0 {
			t.Errorf("overrides at the end %v, %v", all, err)
		}
	})
}

// TestOverridesElsewhere sees the overrides of another process within a second, and asks the store once a second.
func TestOverridesElsewhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shared := new(keeper)
		use := func(c *engine.Config) { c.Overrider = shared }
		here, there := newEngine(t, overriding, use), newEngine(t, overriding, use)
		s := compile(t, there, "1/hour")
		a := &engine.Ask{Identities: []store.Identity{text("a")}, Cost: 1}
		allow(t, there, s, a)
		o := &engine.Override{Limits: limits(t, "500/hour", "700/hour with fixed window"), Until: inAnHour()}
		if err := here.SetOverride(t.Context(), here.OverrideKeyOf(nil), text("a"), "a", o); err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		waited := make(chan error, 1)
		go func() { waited <- wait(t.Context(), there, s, a, new(engine.Result)) }()
		before := shared.reads
		for range 100 {
			time.Sleep(10 * time.Millisecond)
			allow(t, there, s, a)
		}
		synctest.Wait()
		if r := allow(t, there, s, a); r.Override == nil || r.Set.Limits[0].Quota != 500 ||
			r.Set.Limits[1].Log() != "fixed-1h0m0s" {
			t.Errorf("after a second the limits are %v", r.Set.Names)
		}
		if err := <-waited; err != nil || time.Since(start) > 2*time.Second { // one that waits has seen it as well
			t.Errorf("%v after %v", err, time.Since(start))
		}
		if n := shared.reads - before; n > 3 {
			t.Errorf("the store was asked %d times in a second", n)
		}
	})
}

// TestLaterEnd has a request that two overrides deny wait for the later end, whichever it is.
func TestLaterEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEngine(t, overriding)
		set := func(spec *keys.Spec, id store.Identity, hours int) {
			o := &engine.Override{Denied: true, Until: time.Now().Add(time.Duration(hours) * time.Hour)}
			must(e.SetOverride(t.Context(), e.OverrideKeyOf(spec), id, id.Text, o))
		}
		org := func(name string) store.Identity { return store.Identity{Kind: "hdr", Scope: "org", Text: name} }
		set(nil, text("a"), 2)
		set(byKeys["org"], org("x"), 1)
		set(byKeys["org"], org("y"), 3)
		s, err := e.Choose(limits(t, "1/hour", "1/hour by org"), false)
		must(err)
		for name, hours := range map[string]int{"x": 2, "y": 3} {
			r := allow(t, e, s, &engine.Ask{Identities: identities(s, "a", name), Cost: 1})
			if r.Cause != engine.ByOverride || r.Retry != time.Duration(hours)*time.Hour {
				t.Errorf("%s: cause %v, retry %v", name, r.Cause, r.Retry)
			}
		}
	})
}

// TestPause denies until the latest end, and lets another override apply again afterwards.
func TestPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEngine(t, overriding)
		s := compile(t, e, "1/hour")
		a := &engine.Ask{Identities: []store.Identity{text("a")}, Cost: 1}
		o := &engine.Override{Limits: limits(t, "5/hour"), Until: inAnHour()}
		if err := e.SetOverride(t.Context(), e.OverrideKeys(s)[0], text("a"), "a", o); err != nil {
			t.Fatal(err)
		}
		allow(t, e, s, a)
		for _, until := range []time.Duration{time.Minute, time.Second} {
			if err := e.SetOverride(t.Context(), e.OverrideKeyOf(nil), text("a"), "a", pause(until)); err != nil {
				t.Fatal(err)
			}
		}
		if r := allow(t, e, s, a); r.Allowed || r.Retry != time.Minute {
			t.Errorf("paused for %v", r.Retry)
		}
		record := *a
		record.Mode = store.ModeRecord
		if r := allow(t, e, s, &record); !r.Allowed {
			t.Error("Record was denied")
		}
		time.Sleep(time.Minute)
		if r := allow(t, e, s, a); !r.Allowed || r.Set.Limits[0].Quota != 5 {
			t.Error("the override does not apply after the pause")
		}
	})
}

// TestOverrideAmongMany sets an override beside many others without reading them.
func TestOverrideAmongMany(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shared := new(keeper)
		e := newEngine(t, overriding, func(c *engine.Config) { c.Overrider = shared })
		s := compile(t, e, "1/hour")
		k := e.OverrideKeys(s)[0]
		for i := range store.MaxOverrides / 5 {
			o := &engine.Override{Limits: limits(t, "5/hour"), Until: inAnHour()}
			if err := e.SetOverride(t.Context(), k, text(fmt.Sprint(i)), "", o); err != nil {
				t.Fatal(err)
			}
		}
		if shared.reads != 0 {
			t.Errorf("all overrides were read %d times", shared.reads)
		}
		a := &engine.Ask{Identities: []store.Identity{text("77")}, Cost: 1}
		one := allow(t, e, s, a)
		a.Identities[0] = text("78")
		if other := allow(t, e, s, a); one.Override == nil || one.Set != other.Set {
			t.Error("equal overrides have different sets")
		}
	})
}

// TestOverrideDoesNotFit lets the limits of a request stay that has too many with those of an override.
func TestOverrideDoesNotFit(t *testing.T) {
	e := newEngine(t, overriding)
	var rules []*engine.Rule
	for i := range store.MostTakes {
		r := &engine.Rule{
			Policy: fmt.Sprint("f/", i), Name: fmt.Sprint("f.", i), Prefix: fmt.Sprint(i, "-"),
			Key: keys.ByValue("user"), Limits: limits(t, "1/minute"),
		}
		must(e.Prepare(r))
		rules = append(rules, r)
	}
	s, err := e.Combine(rules, false)
	must(err)
	o := &engine.Override{Limits: limits(t, "5/minute", "9/hour"), Until: inAnHour()}
	must(e.SetOverride(t.Context(), e.OverrideKeys(rules[0].Set())[0], text("a"), "a", o))
	a := &engine.Ask{Identities: slices.Repeat([]store.Identity{text("a")}, len(s.Keys)), Cost: 1}
	for i := range 2 {
		if r := allow(t, e, s, a); r.Allowed != (i == 0) || r.Override != nil {
			t.Errorf("request %d: allowed %v, override %v", i, r.Allowed, r.Override)
		}
	}
	if s, err = e.Combine(rules[:2], false); err != nil {
		t.Fatal(err)
	}
	a.Identities = a.Identities[:len(s.Keys)]
	if r := allow(t, e, s, a); r.Override == nil {
		t.Error("a request of two rules has no override")
	}
}

// TestAgainAfterOverrides asks once more about keys and units that an override has joined, when that has ended.
func TestAgainAfterOverrides(t *testing.T) {
	e := newEngine(t, overriding)
	given := limits(t, "9/hour", "9/hour by org", "90 tokens/hour by org", "9/day by org")
	for i, label := range []string{"", "a", "b", "c"} {
		given[i].Label = label
	}
	s, err := e.Compile(given, false)
	must(err)
	k := e.OverrideKeys(s)[1]
	o := &engine.Override{Limits: limits(t, "5/hour", "50 tokens/hour"), Until: inAnHour()}
	must(e.SetOverride(t.Context(), k, identities(s, "", "acme")[1], "", o))
	a := &engine.Ask{Identities: identities(s, "alice", "acme"), Cost: 1, Costs: costs(s, 1, 10)}
	joined := allow(t, e, s, a)
	if n := len(joined.Set.Limits); n != 3 {
		t.Fatalf("%d limits with the override, want 3", n)
	}
	must(e.RemoveOverride(t.Context(), k, identities(s, "", "acme")[1]))
	joined.Keep()
	again := new(engine.Result)
	must(joined.Again(t.Context(), false, again))
	if again.Set != s {
		t.Error("another set without the override")
	}
	for i, want := range []int{1, 1, 10, 0} { // no limit with the override had the log of the last one
		if used := again.State(i).Used; used != want {
			t.Errorf("%s: %d used, want %d", s.Limits[i].Text, used, want)
		}
	}
	if again.Identity().Text != "alice" || again.State(2).Left != 70 || again.State(3).Left != 8 {
		t.Errorf("asked as %v: %+v, %+v", again.Identity(), again.State(2), again.State(3))
	}
	again = allow(t, e, s, a)
	for i, want := range []int{2, 2, 20, 1} {
		if used := again.State(i).Used; used != want {
			t.Errorf("%s: %d used by the same keys, want %d", s.Limits[i].Text, used, want)
		}
	}
}
