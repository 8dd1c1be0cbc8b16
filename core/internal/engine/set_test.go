package engine_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"github.com/sashlimit/sash/core/internal/calendar"
	"github.com/sashlimit/sash/core/internal/engine"
	"github.com/sashlimit/sash/core/internal/keys"
	"github.com/sashlimit/sash/core/internal/limittext"
	"github.com/sashlimit/sash/core/internal/memory"
	"github.com/sashlimit/sash/core/store"
)

// TestNamesOfLogs has what names a log: its window, algorithm and unit, whose it is, and never a quota.
func TestNamesOfLogs(t *testing.T) {
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	month := limittext.Limit{Quota: 5, Form: limittext.Form{Calendar: calendar.New(calendar.Month, berlin)}}
	e := newEngine(t)
	for _, c := range []struct {
		given engine.Given
		want  string
	}{
		{limits(t, "3/minute")[0], "1m0s"},
		{limits(t, "3 tokens/hour")[0], "1h0m0s.tokens"},
		{limits(t, "3/minute with fixed window")[0], "fixed-1m0s"},
		{limits(t, "3 tokens/minute with sliding counter")[0], "counter-1m0s.tokens"},
		{limits(t, "10/second burst 50")[0], "bucket-100000000ns"},
		{limits(t, "600/minute burst 5")[0], "bucket-100000000ns"},
		{limits(t, "5/month")[0], "month"},
		{limits(t, "4 in flight")[0], "in-flight"},
	} {
		s, err := e.Compile([]engine.Given{c.given}, false)
		if err != nil {
			t.Fatal(err)
		}
		if got, want := logsOf(s)[0], "test:own.by:954c5d3a4bf4f8965a926ee974edb4f6 "+c.want; got != want {
			t.Errorf("%s is on the log %s, not %s", c.given.String(), got, want)
		}
	}
	names := make(map[string]store.Algorithm)
	for _, a := range store.Algorithms() {
		text := "%d/minute with " + a.String()
		if a == store.TokenBucket {
			text = "3/minute burst %d"
		}
		name := logsOf(compile(t, e, fmt.Sprintf(text, 3)))[0]
		if other, taken := names[name]; taken {
			t.Errorf("%v and %v share the log %s", a, other, name)
		}
		if other := logsOf(compile(t, e, fmt.Sprintf(text, 4)))[0]; other != name {
			t.Errorf("%v: with another quota the log %s becomes %s", a, name, other)
		}
		names[name] = a
	}
	fixed := month
	fixed.Calendar = calendar.New(calendar.Month, time.FixedZone("Europe/Berlin", 3600))
	one, err := e.Choose([]engine.Given{{Limit: month}}, false)
	must(err)
	other, err := e.Choose([]engine.Given{{Limit: fixed}}, false)
	must(err)
	if logsOf(one)[0] == logsOf(other)[0] {
		t.Errorf("two zones of one name share the log %s", logsOf(one)[0])
	}
}

// TestKeysOfLogs has whose a log is: of the own key, or of By, told apart by labels.
func TestKeysOfLogs(t *testing.T) {
	named := func(name string, g engine.Given) engine.Given {
		g.Name, g.Label = name, name
		return g
	}
	key := func() *keys.Spec { return keys.ByValue("org") }
	one, two := key(), key()
	by := func(k *keys.Spec, text string) engine.Given {
		g := limits(t, text)[0]
		g.Key = k
		return g
	}
	for _, c := range []struct {
		name  string
		given []engine.Given
		want  string // the parts, or the problem
	}{
		{"own and By of equal texts", []engine.Given{limits(t, "3/minute")[0], by(one, "3/minute")}, "own.by by.by"},
		{"By is told by its header", []engine.Given{by(byKeys["org"], "3/minute")}, "by.org.by"},
		{"By is told by its name", []engine.Given{named("team", by(one, "3/minute"))}, "by.team.by"},
		{"a name that is no label", []engine.Given{named("Team", by(one, "3/minute"))}, "by.5985039f106df054.by"},
		{
			"two keys with names", []engine.Given{named("x", by(one, "3/minute")), named("y", by(two, "3/minute"))},
			"by.x.by by.y.by",
		},
		{"two keys", []engine.Given{by(one, "3/minute"), by(two, "3/hour")}, "may name the same logs"},
		{"one key twice", []engine.Given{by(one, "3/minute"), by(one, "3/hour")}, "by." + "by by.by"},
		{"one log twice", []engine.Given{by(one, "3/minute"), by(one, "4/minute")}, "the larger never denies"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, err := newEngine(t).Compile(c.given, false)
			if err != nil {
				if !strings.Contains(err.Error(), c.want) {
					t.Error(err)
				}
				return
			}
			var parts []string
			for _, name := range logsOf(s) {
				part := strings.Split(name, ":")[1]
				parts = append(parts, part)
			}
			if got := strings.Join(parts, " "); got != c.want {
				t.Errorf("the logs are of %s, not %s", got, c.want)
			}
		})
	}
}

// TestQuotasChange keeps what was used when a quota changes, for limits with By too, and begins anew with another
// window.
func TestQuotasChange(t *testing.T) {
	for _, by := range []string{"", " by org"} {
		logs := memory.New(10)
		for _, c := range []struct {
			limit string
			used  int
		}{{"5/hour" + by, 0}, {"6/hour" + by, 1}, {"3/hour" + by, 2}, {"3/minute" + by, 0}} {
			e := newEngine(t, func(c *engine.Config) { c.Memory = logs })
			s := compile(t, e, c.limit)
			r := allow(t, e, s, &engine.Ask{Identities: identities(s, "a", "o"), Cost: 1})
			if r.State(0).Used != c.used {
				t.Errorf("%s: used %d, not %d", c.limit, r.State(0).Used, c.used)
			}
		}
	}
}

func TestNamesInHeaders(t *testing.T) {
	e := newEngine(t)
	given := limits(t, "100000 tokens/minute", "100000 tokens/minute by org", "100000 tokens/minute by all", "5/hour")
	given[3].Name = "hourly"
	s, err := e.Compile(given, false)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"100000-tokens-per-minute", "100000-tokens-per-minute-2", "100000-tokens-per-minute-3", "hourly"}
	if !slices.Equal(s.Names, want) {
		t.Errorf("names %v", s.Names)
	}
	const header = `"100000-tokens-per-minute";q=100000;qu="tokens";w=60, ` +
		`"100000-tokens-per-minute-2";q=100000;qu="tokens";w=60, ` +
		`"100000-tokens-per-minute-3";q=100000;qu="tokens";w=60, "hourly";q=5;w=3600`
	if s.Header != header {
		t.Errorf("header %s", s.Header)
	}
	given[0].Name = "hourly"
	if _, err = e.Compile(given, false); err == nil ||
		!strings.Contains(err.Error(), `two limits have the name "hourly"`) {
		t.Errorf("equal names: %v", err)
	}
	given[0].Name, given[3].Name = "", "100000-tokens-per-minute" // a default name gives way to one that is given
	if s, err = e.Compile(given, false); err != nil || s.Names[0] != "100000-tokens-per-minute-2" {
		t.Errorf("names %v, %v", s.Names, err)
	}
}

// TestChoose remembers sets by content, at most 1,024 of them, and keeps no memory of requests.
func TestChoose(t *testing.T) {
	e := newEngine(t)
	choose := func(given []engine.Given) *engine.Set {
		s, err := e.Choose(given, false)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	zoned := func() []engine.Given {
		berlin, err := time.LoadLocation("Europe/Berlin")
		if err != nil {
			t.Fatal(err)
		}
		return []engine.Given{{Limit: limittext.Limit{
			Quota: 5, Form: limittext.Form{Calendar: calendar.New(calendar.Day, berlin)},
		}}}
	}
	if again := choose(zoned()); again != choose(zoned()) {
		t.Error("a time zone that is loaded again makes another set")
	}
	if again := choose(limits(t, "3 tokens/minute")); again != choose(limits(t, "3 tokens/minute")) {
		t.Error("equal limits make another set")
	}
	if n := testing.AllocsPerRun(100, func() { choose(limitsOf) }); n != 0 {
		t.Errorf("a set that is known has %v allocations", n)
	}
	unit, name := []byte("tokens"), []byte("plan-a")
	g := limits(t, "3/minute")
	g[0].Unit, g[0].Name = unsafe.String(&unit[0], len(unit)), unsafe.String(&name[0], len(name))
	s := choose(g)
	copy(unit, "xxxxxx")
	copy(name, "\r\nX:\"!")
	if s.Limits[0].Unit != "tokens" || s.Names[0] != "plan-a" || !strings.HasPrefix(s.Header, `"plan-a"`) {
		t.Error("a set keeps the memory of a request")
	}
	for i := range 5_000 {
		g = limits(t, "3/minute")
		g[0].Name = fmt.Sprintf("name-%d", i%2000)
		if s := choose(g); s.Names[0] != g[0].Name {
			t.Fatal("a set has another name")
		}
	}
	if _, err := e.Choose(limits(t, "3/minute", "4/minute"), false); err == nil {
		t.Error("two limits on one log were accepted")
	}
}

var limitsOf = []engine.Given{{Limit: limittext.Limit{Quota: 3, Window: time.Hour, Name: "x"}}}

// TestRules combines the limits of rules that apply together, each with logs of its own.
func TestRules(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEngine(t)
		user := keys.ByValue("user")
		rules := []*engine.Rule{
			{Policy: "file/a", Name: "file.a", Prefix: "a-", Key: user, Limits: limits(t, "2/minute")},
			{Policy: "file/b", Name: "file.b", Prefix: "b-", Key: user, Limits: limits(t, "3/minute"), Label: "x"},
			{Policy: "file/c", Name: "file.c", Prefix: "c-", Key: user, Limits: limits(t, "1/minute"), Shadow: true},
		}
		for _, r := range rules {
			if err := e.Prepare(r); err != nil {
				t.Fatal(err)
			}
		}
		combine := func(rules []*engine.Rule, shadow bool) *engine.Set {
			s, err := e.Combine(rules, shadow)
			must(err)
			if again, _ := e.Combine(rules, shadow); again != s {
				t.Error("the set was made again")
			}
			return s
		}
		set, shadow := combine(rules, false), combine(rules, true)
		ids := []store.Identity{text("a"), text("a")}
		decide := func() *engine.Result {
			r := new(engine.Result)
			a := engine.Ask{Identities: ids, Costs: []int{1, 2}, Cost: 1}
			a.Shadow = &engine.Trial{Set: shadow, Ask: engine.Ask{Identities: ids[:1], Cost: 1}}
			if err := e.Decide(t.Context(), set, &a, r); err != nil {
				t.Fatal(err)
			}
			return r
		}
		r := decide()
		if !r.Allowed || r.State(0).Left != 1 || r.State(1).Left != 1 || r.Rule() != rules[0] || !r.Shadow.Allowed {
			t.Errorf("first: %v, left %d and %d, rule %v", r.Allowed, r.State(0).Left, r.State(1).Left, r.Rule())
		}
		r = decide()
		if r.Allowed || r.Rule() != rules[1] || !slices.Equal(r.Denying(), []string{"b-3-per-minute"}) ||
			r.Shadow.Allowed {
			t.Errorf("second: %v, %v, rule %v", r.Allowed, r.Denying(), r.Rule())
		}
		all := append(logsOf(set), logsOf(shadow)...)
		for i, want := range []string{"file.a:own.by:", "file.b:own~x.by:", "file.c~shadow:own.by:"} {
			if !strings.HasPrefix(all[i], want) {
				t.Errorf("log %s, not %s", all[i], want)
			}
		}
		var many []*engine.Rule
		for i := range 9 {
			var nine []engine.Given
			for k := range engine.MostLimits {
				nine = append(nine, limits(t, fmt.Sprintf("5/%dm", k+1))...)
			}
			many = append(many, &engine.Rule{Name: fmt.Sprintf("file.m%d", i), Key: user, Limits: nine})
			if err := e.Prepare(many[i]); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := e.Combine(many, false); !errors.As(err, new(*store.ConfigError)) {
			t.Errorf("72 limits: %v", err)
		}
		if set = combine(nil, false); len(set.Limits) != 0 {
			t.Errorf("no rules: %v", set)
		}
		if r = allow(t, e, set, &engine.Ask{}); !r.Allowed || r.Cause != engine.ByNothing {
			t.Errorf("no rules: %v", r)
		}
	})
}
