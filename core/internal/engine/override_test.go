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
			a.Costs = s.Costs(nil, 1, map[string]int{"tokens": 1})
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
		if !r.Allowed || r.Override == nil || r.Used(slices.Index(r.Set.Names, "5-per-minute")) != 2 {
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
			r.Tells(1) {
			t.Errorf("unlimited by the organisation: %v, %s", r.Allowed, r.Set.Header)
		}
		if r = ask("a"); !r.Allowed || r.Left(3) != 0 {
			t.Errorf("the last unit of the larger quota: %v, left %d", r.Allowed, r.Left(3))
		}
		if r = ask("a"); r.Allowed || !slices.Equal(r.Denying(), []string{"5-per-minute"}) {
			t.Errorf("the larger quota: %v, %v", r.Allowed, r.Denying())
		}
		set(0, text("c"), &engine.Override{Denied: true})
		set(1, org, &engine.Override{Denied: true})
		time.Sleep(time.Minute)
		r = ask("c")
		if r.Allowed || r.Cause != engine.ByOverride || r.Retry != 59*time.Minute || r.Never() ||
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
		go func() { waited <- there.Wait(t.Context(), s, a, new(engine.Result)) }()
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

// TestOverridesOfRules has an override of a rule's key, by the name of the rule, and by a decision.
func TestOverridesOfRules(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEngine(t, overriding)
		user := keys.ByValue("user")
		rules := []*engine.Rule{
			{Policy: "f/a", Name: "f.a", Prefix: "a-", Key: user, Limits: limits(t, "1/minute")},
			{Policy: "f/b", Name: "f.b", Prefix: "b-", Key: user, Limits: limits(t, "2/minute", "9/minute by org")},
		}
		for _, r := range rules {
			if err := e.Prepare(r); err != nil {
				t.Fatal(err)
			}
		}
		set, _, err := e.Combine(rules)
		if err != nil {
			t.Fatal(err)
		}
		names := ""
		for _, k := range e.OverrideKeys(rules[0].Set(), rules[1].Set()) {
			names += k.Name + " "
		}
		if names != "f/a f/b f/b/b-9-per-minute " {
			t.Errorf("keys of overrides %s", names)
		}
		ids := make([]store.Identity, len(set.Keys))
		for i, k := range set.Keys {
			if ids[i] = text("a"); k.Spec == byKeys["org"] {
				ids[i] = store.Identity{Kind: "hdr", Scope: "org", Text: "o"}
			}
		}
		a := &engine.Ask{Identities: ids, Cost: 1}
		allow(t, e, set, a)
		r := allow(t, e, set, a)
		if r.Rule() != rules[0] {
			t.Fatalf("denied by %v", r.Denying())
		}
		o := &engine.Override{Limits: limits(t, "5/minute"), Until: inAnHour()}
		k, id := r.OverrideKey(nil) // of the rule that denied
		if err = e.SetOverride(t.Context(), k, id, "a", o); err != nil {
			t.Fatal(err)
		}
		if r = allow(t, e, set, a); !r.Allowed || !slices.Contains(r.Set.Names, "a-5-per-minute") {
			t.Errorf("with the override: %v, %v", r.Allowed, r.Set.Names)
		}
		if r = allow(t, e, set, a); r.Allowed || r.Rule() != rules[1] {
			t.Errorf("the other rule: %v, %v", r.Allowed, r.Rule())
		}
	})
}

func TestMistakesInOverrides(t *testing.T) {
	e := newEngine(t, overriding)
	s := compile(t, e, "1/hour")
	k := e.OverrideKeys(s)[0]
	for want, o := range map[string]*engine.Override{
		"exactly one must be set":           {Until: inAnHour()},
		"the end is in the past":            {Denied: true, Until: time.Now().Add(-time.Hour)},
		"an override needs an end":          {Denied: true},
		"no limit of the key counts tokens": {Limits: limits(t, "1 tokens/hour"), Until: inAnHour()},
		"have no key of their own":          {Limits: limits(t, "1/hour by org"), Until: inAnHour()},
		"the larger never denies":           {Limits: limits(t, "1/hour", "2/hour"), Until: inAnHour()},
		"there are no limits":               {Limits: []engine.Given{}, Until: inAnHour()},
	} {
		if err := e.SetOverride(t.Context(), k, text("a"), "a", o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", want, err)
		}
	}
	e = newEngine(t)
	if err := e.SetOverride(t.Context(), e.OverrideKeyOf(nil), text("a"), "a", pause(time.Hour)); err == nil {
		t.Error("an engine without overrides has paused")
	}
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
