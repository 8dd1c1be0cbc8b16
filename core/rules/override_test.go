package rules_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/coretest"
	"github.com/sashlimit/sash/core/event"
	"github.com/sashlimit/sash/core/rules"
)

var overridable = rules.WithOptions(core.WithOverrides())

func (l *limited) override(rule, key string, o core.Override) {
	l.t.Helper()
	o.Until = time.Now().Add(time.Minute)
	if err := l.Override(l.t.Context(), rule, key, o); err != nil {
		l.t.Fatal(err)
	}
}

func (l *limited) overrides(want int) []core.KeyOverride {
	l.t.Helper()
	all, err := l.Overrides(l.t.Context())
	if err != nil || len(all) != want || l.limiter.Stats().Overrides != want {
		l.t.Errorf("overrides: %+v, %v, %d in Stats; want %d", all, err, l.limiter.Stats().Overrides, want)
	}
	return all
}

// Each kind of key has overrides, of one rule alone, although others have the same key.
func TestOverrideOfRules(t *testing.T) {
	verify := rules.WithVerifier("keys", core.Unverified)
	claims := rules.WithClaims(func(string) core.Key { return core.ByHeader("X-Claim", core.Unverified) })
	const odd = "a:b/ü\x00<i>"
	for _, c := range []struct{ key, text, values string }{
		{"ip", "192.0.2.7", "ip=192.0.2.7"},
		{"ip", "2001:db8::1", "ip=[2001:db8::2]"},
		{"{header: X-Key, verify: keys}", odd, "X-Key=" + odd},
		{"{first: [{value: user}, ip]}", "ann", "user=ann"},
		{"{first: [{value: user}, ip]}", "192.0.2.7", "ip=192.0.2.7"},
		{"global", "-", ""},
		{"{claim: sub}", "customer7", "X-Claim=customer7"},
	} {
		synctest.Test(t, func(t *testing.T) {
			l := limit(t, `
rules:
- {name: a, match: {path: /a}, key: `+c.key+`, limits: [2/minute]}
- {name: b, match: {path: /b}, key: `+c.key+`, limits: [2/minute]}
`, overridable, verify, claims)
			follow := func(steps string) {
				l.follow(strings.NewReplacer("KEY", c.text, "VALUES", c.values).Replace(steps))
			}
			follow(`2/3 /b VALUES
				override a KEY 5/minute
				5/6 /a VALUES
				0/1 /b VALUES`)
			if o := l.overrides(1)[0]; o.Policy != "a" || o.Key != strings.Trim(c.text, "-") || o.Note != "n" {
				t.Errorf("%s: %+v", c.key, o)
			}
			follow(`override b KEY unlimited
				9/9 /b VALUES
				override a KEY denied
				0/1 /a VALUES`)
			must(t, l.RemoveOverride(t.Context(), "a", strings.Trim(c.text, "-")))
			follow("0/1 /a VALUES") // 5 of 2 are used
			must(t, l.RemoveOverrideByID(t.Context(), l.overrides(1)[0].ID))
			time.Sleep(time.Minute)
			follow("2/3 /a VALUES\n2/3 /b VALUES")
		})
	}
}

// Limits and descriptors with keys of their own are named by a limit. An override stays when the file is loaded again.
func TestOverrideOfKeysInRules(t *testing.T) {
	text := `
apply: all
rules:
- name: api
  key: {value: user}
  limits: [3/minute, {limit: 9/minute, key: global, name: all}, {limit: 4/minute, key: {value: org}}]
- name: sms
  match: {path: /sms}
  descriptors:
  - {key: to, limits: [2/hour]}
  - {key: to, value: robot, limits: [{limit: 1/hour, name: robots}]}
`
	f := newFile(t, text)
	synctest.Test(t, func(t *testing.T) {
		l := f.load(overridable)
		l.t = t
		l.follow(`override api ann 20/minute
			4/5 user=ann org=a
			override api/api-4-per-minute a unlimited
			5/6 user=ann org=a
			override api/all - 11/minute
			2/3 user=ann org=a
			override api/all - unlimited
			override sms 123 5/hour
			override sms/robots robot 3/hour`)
		f.reload(l, strings.ReplaceAll(text, "2/hour", "2/day"))
		l.follow(`4/4 /sms user=ann org=a to=123
			3/4 /sms user=ann org=a to=robot
			2/3 /sms user=ann org=a to=other`)
		l.overrides(5)
	})
}

// Of several rules, the one whose key is denied is named, with its message. A decision overrides the key of the rule
// that it names.
func TestOverrideOfSeveralRules(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := limit(t, `
apply: all
rules:
- {name: all, key: global, limits: [99/minute]}
- {name: one, key: {value: user}, limits: [5/minute], message: one}
- {name: two, key: {join: [{value: user}, {value: org}]}, limits: [2/minute], message: two}
- {name: tried, key: {value: user}, limits: [1/minute], shadow: true}
`, overridable)
		l.override("one", "ann", core.Override{Limits: core.Limits{core.PerMinute(7)}})
		l.want("GET /", "user=ann org=a", 3, 2)
		d, err := l.ask(with("GET /", "user=ann org=a"))
		if err != nil || d.Policy != "two" {
			t.Fatal(d, err)
		}
		o := core.Override{Denied: true, Until: time.Now().Add(time.Minute)}
		must(t, d.Override(t.Context(), o))
		d, err = l.ask(with("GET /", "user=ann org=a"))
		if err != nil || d.Allowed || d.Policy != "two" || d.Problem().Detail != "two" || d.Overridden == nil {
			t.Errorf("%v of %s, %q, %v; want the denial of the second rule", d, d.Policy, d.Problem().Detail, err)
		}
		l.want("GET /", "user=ann org=b", 3, 2)
		if all := l.overrides(2); all[0].Policy != "one" || all[1].Policy != "two" {
			t.Errorf("%+v", all)
		}
		must(t, d.Override(t.Context(), core.Override{Unlimited: true, Until: o.Until}))
		l.want("GET /", "user=ann org=a", 9, 3) // 7 of the first rule, of which 4 are used
	})
}

// Mistakes are told, and rules of another domain on the same store are not listed.
func TestOverrideMistakesOfRules(t *testing.T) {
	s := new(coretest.FakeStore)
	text := `
rules:
- {name: api, match: {path: /a}, key: {join: [{value: user}, ip]}, limits: [3/minute]}
- {name: tried, match: {path: /b}, key: ip, limits: [3/minute], shadow: true}
- {name: free, match: {path: /c}, unlimited: true}
- {name: both, descriptors: [{key: user, limits: [2/day]}, {key: org, limits: [{limit: 2/hour, name: orgs}]}]}
`
	l := limit(t, text, overridable, rules.WithOptions(core.WithStore(s)))
	soon := time.Now().Add(time.Hour)
	denied := core.Override{Denied: true, Until: soon}
	for _, c := range []struct {
		rule, key string
		o         core.Override
		want      string
	}{
		{"api", "ann", denied, "Decision.Override"},
		{"tried", "192.0.2.1", denied, "Override(tried): no limits of this name deny"},
		{"free", "x", denied, "no limits of this name deny"},
		{"none", "x", denied, "no limits of this name deny"},
		{"both", "x", denied, "use one of both/both-2-per-day, both/orgs"},
		{"both/none", "x", denied, "use one of both/both-2-per-day, both/orgs"},
		{"both/orgs", "", denied, core.ErrNoKey.Error()},
		{"both/orgs", "x", core.Override{Until: soon}, "exactly one must be set"},
		{"both/orgs", "x", core.Override{Until: soon, Limits: core.Limits{core.PerDay(1).Of("tokens")}},
			"counts tokens"},
		{"both/orgs", "x", core.Override{Until: soon, Denied: true, By: core.Global()}, `"rule/limit"`},
	} {
		err := l.Override(t.Context(), c.rule, c.key, c.o)
		if !errors.As(err, new(*core.ConfigError)) && !errors.Is(err, core.ErrNoKey) ||
			!strings.Contains(err.Error(), c.want) {
			t.Errorf("%s %s: %v; want %q", c.rule, c.key, err, c.want)
		}
	}
	if err := l.limiter.Override(t.Context(), "x", denied); err == nil ||
		!strings.Contains(err.Error(), "of the rules") {
		t.Errorf("Override of the limiter: %v", err)
	}
	l.override("both/orgs", "acme", denied)
	l.overrides(1)
	other := limit(t, "domain: other\n"+text, overridable, rules.WithOptions(core.WithStore(s)))
	other.overrides(0)
	without := limit(t, text)
	_, listed := without.Overrides(t.Context())
	for call, err := range map[string]error{
		"Override": without.Override(t.Context(), "both/orgs", "x", denied), "Overrides": listed,
		"RemoveOverride": without.RemoveOverride(t.Context(), "both/orgs", "x"),
	} {
		if err == nil || !strings.Contains(err.Error(), "WithOverrides") {
			t.Errorf("%s without the option: %v", call, err)
		}
	}
}

// Explain tells of the overrides in force for a request what they are and what they leave, in text and in JSON.
func TestExplainOverrides(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := limit(t, `
apply: all
rules:
- name: api
  key: {value: user}
  limits: [3/minute, 9/hour, {limit: 50/day, key: global, name: all}, {limit: 100/minute, unit: tokens}]
  costs: {tokens: 7}
- {name: tried, key: {value: user}, limits: [1/minute], shadow: true}
`, overridable)
		l.override("api", "ann", core.Override{Note: "a\nb", Limits: core.Limits{
			core.PerMinute(1), core.PerMinute(1000).Of("tokens"), core.PerDay(8),
		}})
		l.want("GET /", "user=ann", 1, 1)
		time.Sleep(time.Second)
		e := l.Explain(with("GET /", "user=ann"))
		const want = `api applies
  50/day: 1 used, 49 left
  1/minute: 1 used, 0 left, free in 59s
  1000 tokens/minute: 7 used, 993 left
  8/day: 1 used, 7 left
  override=limits until 2000-01-01T00:01:00Z: a\nb
tried applies
  1/minute: 1 used, 0 left, free in 59s
`
		if _, got, _ := strings.Cut(fmt.Sprint(e), "\n"); got != want || e.Decision.Allowed {
			t.Errorf("explained\n%v\nwant\n%s", e, want)
		}
		if text := inJSON(t, e); strings.Contains(text, "Overridden\":{") {
			t.Error(text)
		}
		for kind, o := range map[string]core.Override{"denied": {Denied: true}, "unlimited": {Unlimited: true}} {
			l.override("api", "ann", o)
			e := l.Explain(with("GET /", "user=ann"))
			want := rules.LimitExplanation{
				Limit: "3/minute", Unit: "requests", Quota: 3, Used: 1, Remaining: 2,
			}
			if got := e.Rules[0].Overrides; len(got) != 1 || got[0].Kind != kind ||
				!got[0].Until.Equal(time.Now().Add(time.Minute)) || e.Decision.Allowed == o.Denied ||
				len(e.Rules[0].Limits) != 4 || e.Rules[0].Limits[0] != want || len(e.Rules[1].Overrides) > 0 {
				t.Errorf("%s: %v", kind, e)
			}
		}
	})
}

// A rule that goes into shadow is explained as it then is: without the overrides that its keys have.
func TestExplainShadowWithOverrides(t *testing.T) {
	const text = "rules:\n- {name: api, key: {value: user}, limits: [3/minute], shadow: %t}\n"
	f := newFile(t, fmt.Sprintf(text, false))
	synctest.Test(t, func(t *testing.T) {
		l := f.load(overridable)
		l.t = t
		l.follow("override api ann denied\n0/1 user=ann")
		f.reload(l, fmt.Sprintf(text, true))
		l.follow("4/4 user=ann") // of which it would have denied the last
		e := l.Explain(with("GET /", "user=ann"))
		if r := e.Rules[0]; len(r.Overrides) > 0 || r.Limits[0].Used != 3 {
			t.Errorf("explained %v", e)
		}
	})
}

// Once requests of a rule have found out about an outage, none of them reads overrides.
func TestOverridesOfRulesInAnOutage(t *testing.T) {
	for _, failure := range []string{"open", "closed"} {
		synctest.Test(t, func(t *testing.T) {
			s, reads := new(coretest.FakeStore), 0
			l := limit(t, "failure: "+failure+"\nrules:\n- {name: a, key: ip, limits: [9/hour]}\n", overridable,
				rules.WithOptions(core.WithStore(s), core.WithStoreObserver(func(_ context.Context, c event.StoreCall) {
					if c.Operation == event.Overrides && c.Err != nil {
						reads++
					}
				})))
			s.Fail(errDown)
			for range 100 {
				time.Sleep(100 * time.Millisecond)
				l.ask(with("GET /", "")) // it may be refused
			}
			if s.Fail(nil); reads != 1 {
				t.Errorf("%s: overrides were read %d times, want once", failure, reads)
			}
			must(t, l.Close())
		})
	}
}
