package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/adapter"
	"github.com/sashlimit/sash/core/event"
	"github.com/sashlimit/sash/core/internal/bridge"
	"github.com/sashlimit/sash/core/redisstore"
	"github.com/sashlimit/sash/core/rules"
)

// ruled is a request that rules are asked about.
type ruled struct {
	method, path string
	values       map[string]string
}

func (r *ruled) Context() context.Context { return context.Background() }
func (r *ruled) Header(string) []string   { return nil }
func (r *ruled) Native() any              { return r }
func (r *ruled) Target() adapter.Target   { return adapter.Target{Method: r.method, Path: r.path} }
func (r *ruled) Peer() adapter.Peer       { return adapter.Peer{Addr: netip.MustParseAddr("192.0.2.1")} }
func (r *ruled) Value(key any) any {
	name, _ := key.(string)
	if v, ok := r.values[name]; ok {
		return v
	}
	return nil
}

// service is a set of rules on a store whose clock the test moves.
type service struct {
	t       *testing.T
	limiter *core.Limiter
	store   core.Store
	advance func(time.Duration)
}

// ask returns the decision about a request, which is served at once.
func (s *service) ask(r ruled) core.Decision {
	s.t.Helper()
	d, err := s.limiter.Check(&r, &r)
	if err != nil {
		s.t.Fatal(err)
	}
	if d.Allowed {
		d.Serve(func() int { return 200 })
	}
	return d
}

// want checks how many of n requests are admitted at once.
func (s *service) want(what string, r ruled, n, admitted int) {
	s.t.Helper()
	got := 0
	for range n {
		if s.ask(r).Allowed {
			got++
		}
	}
	if got != admitted {
		s.t.Errorf("%s: %d of %d admitted, want %d", what, got, n, admitted)
	}
}

// serve returns the rules of a text, and a service that they limit.
func serve(t *testing.T, text string, opts ...core.Option) (*rules.Set, *service) {
	t.Helper()
	set, err := rules.Parse([]byte(text), "limits.yaml",
		rules.WithOptions(append(opts, core.WithTimeout(time.Minute))...))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { set.Close() })
	l, err := set.Limiter()
	if err != nil {
		t.Fatal(err)
	}
	return set, &service{t: t, limiter: l}
}

// onBothStores runs f for a set of rules in memory and on Redis, with a clock that stands still.
func onBothStores(t *testing.T, name, text string, f func(*service)) {
	with := func(t *testing.T, store core.Store, advance func(time.Duration)) {
		_, s := serve(t, text, core.WithStore(store), core.WithDenyCache(0))
		s.store, s.advance = store, advance
		f(s)
	}
	t.Run(name+" in memory", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) { with(t, core.NewMemoryStore(), time.Sleep) })
	})
	t.Run(name+" on Redis", func(t *testing.T) {
		t.Parallel()
		c := newClock(start(t))
		with(t, redisstore.Single(newStore(c)), c.Advance)
	})
}

// The classic rate limiter service: rules for a unit of time, for each value of a descriptor and for one value, with
// four strategies; the edge of a window; and several rules for one service.
func TestClassicRules(t *testing.T) {
	t.Parallel()
	for _, strategy := range []string{"token_bucket", "fixed_window", "sliding_window_log", "sliding_window_counter"} {
		onBothStores(t, strategy+" per unit", fmt.Sprintf(`
rules: [{name: api, key: global, algorithm: %s, limits: [4/minute]}]`, strategy), func(s *service) {
			toNextMinute(s)
			s.want("the first minute", ruled{}, 6, 4)
			s.advance(2 * time.Minute)
			s.want("two minutes later", ruled{}, 6, 4)
		})
		onBothStores(t, strategy+" per value", fmt.Sprintf(`
rules:
- name: api
  algorithm: %s
  descriptors: [{key: user, limits: [2/minute]}]`, strategy), func(s *service) {
			toNextMinute(s)
			s.want("anna", ruled{values: map[string]string{"user": "anna"}}, 3, 2)
			s.want("bert", ruled{values: map[string]string{"user": "bert"}}, 3, 2)
			s.want("nobody", ruled{}, 3, 3)
			s.advance(2 * time.Minute)
			s.want("anna again", ruled{values: map[string]string{"user": "anna"}}, 3, 2)
		})
		onBothStores(t, strategy+" for one value", fmt.Sprintf(`
rules:
- name: api
  algorithm: %s
  descriptors:
  - {key: user, value: vip, limits: [5/minute]}
  - {key: user, value: root, unlimited: true}
  - {key: user, limits: [2/minute]}`, strategy), func(s *service) {
			toNextMinute(s)
			s.want("vip", ruled{values: map[string]string{"user": "vip"}}, 7, 5)
			s.want("root", ruled{values: map[string]string{"user": "root"}}, 20, 20)
			s.want("another", ruled{values: map[string]string{"user": "anna"}}, 4, 2)
		})
		onBothStores(t, strategy+" for a service", fmt.Sprintf(`
apply: all
rules:
- {name: all, key: global, algorithm: %[1]s, limits: [5/minute]}
- {name: users, key: {value: user}, algorithm: %[1]s, limits: [2/minute]}
- {name: writes, match: {methods: [POST], path: /orders/}, key: global, algorithm: %[1]s, limits: [1/minute]}`,
			strategy), func(s *service) {
			toNextMinute(s)
			anna, bert := map[string]string{"user": "anna"}, map[string]string{"user": "bert"}
			s.want("anna writes", ruled{"POST", "/orders/1", anna}, 3, 1)
			s.want("anna reads", ruled{"GET", "/orders/1", anna}, 3, 1)
			s.want("bert writes", ruled{"POST", "/orders/1", bert}, 3, 0)
			s.want("bert reads", ruled{"GET", "/", bert}, 3, 2)
			s.want("cleo", ruled{"GET", "/", map[string]string{"user": "cleo"}}, 3, 1) // the service is used up
		})
	}
	for strategy, most := range map[string]int{"fixed_window": 8, "sliding_window_log": 4} {
		onBothStores(t, strategy+" at the edge", fmt.Sprintf(`
rules: [{name: api, key: global, algorithm: %s, limits: [4/minute]}]`, strategy), func(s *service) {
			toNextMinute(s)
			s.advance(59 * time.Second)
			admitted := 0
			for range 2 {
				for range 6 {
					if s.ask(ruled{}).Allowed {
						admitted++
					}
				}
				s.advance(2 * time.Second)
			}
			if admitted != most {
				s.t.Errorf("%d admitted within 2 s, want %d", admitted, most)
			}
		})
	}
}

// toNextMinute moves the clock to the beginning of a minute, which a fixed window tells.
func toNextMinute(s *service) {
	s.t.Helper()
	set, err := rules.Parse([]byte(`rules: [{name: clock, key: global, algorithm: fixed_window, limits: `+
		`[1000/minute]}]`),
		"clock.yaml", rules.WithOptions(core.WithStore(s.store), core.WithTimeout(time.Minute)))
	if err != nil {
		s.t.Fatal(err)
	}
	defer set.Close()
	l, err := set.Limiter()
	if err != nil {
		s.t.Fatal(err)
	}
	r := new(ruled)
	d, err := l.Check(r, r)
	if err != nil {
		s.t.Fatal(err)
	}
	d.Serve(func() int { return 200 })
	s.advance(d.ResetAfter)
}

// A decision by rules shows the windows of all limits that were asked, each with its own key, and resets one of them.
func TestWindowsOfRules(t *testing.T) {
	t.Parallel()
	onBothStores(t, "windows", `
apply: all
rules:
- name: user
  descriptors: [{key: user, limits: [3/minute]}]
- name: all
  key: global
  limits: [100/minute, {limit: 50/minute, algorithm: fixed_window}]`, func(s *service) {
		var d core.Decision
		for range 3 {
			if d = s.ask(ruled{values: map[string]string{"user": "anna"}}); !d.Allowed {
				s.t.Fatal(d)
			}
			s.advance(10 * time.Second)
		}
		windowsOf := bridge.Limiters.(*bridge.Functions[*core.Limiter, core.Decision, core.Override]).Windows
		windows := func() (all []bridge.Window) {
			all, err := windowsOf(s.t.Context(), d)
			if err != nil || len(all) != 3 {
				s.t.Fatal(all, err)
			}
			return all
		}
		first := windows()
		for i, want := range []struct {
			used, remaining, entries int
			reset                    time.Duration
		}{{3, 0, 3, 30 * time.Second}, {3, 97, 3, 30 * time.Second}, {3, 47, 0, 0}} {
			w := first[i]
			if w.Used != want.used || w.Remaining != want.remaining || len(w.Entries) != want.entries {
				s.t.Errorf("%d: %+v", i, w)
			}
			if want.entries > 0 && (w.ResetAfter != want.reset || w.Now.Sub(w.Entries[0].At) != 30*time.Second) {
				s.t.Errorf("%d: the oldest entry, of %v, leaves in %v at %v", i, w.Entries[0].At, w.ResetAfter, w.Now)
			}
		}
		if err := first[0].Reset(s.t.Context()); err != nil {
			s.t.Fatal(err)
		}
		if after := windows(); after[0].Used != 0 || after[1].Used != 3 || after[2].Used != 3 {
			s.t.Errorf("after the reset: %+v", after)
		}
	})
}

// Denials that count in a log take nothing from a month, also where the logs are asked one after the other; and they
// count there where several such limits deny, too.
func TestCountDeniedBesideAMonth(t *testing.T) {
	t.Parallel()
	rdb := start(t)
	for name, store := range map[string]core.Store{
		"one script": redisstore.New(rdb), "in turn": redisstore.New(anyClient{rdb}, redisstore.WithPrefix("turn")),
	} {
		_, s := serve(t, `
apply: all
rules:
- {name: login, match: {methods: [POST], path: /login}, key: ip, limits: [2/hour], count_denied: true}
- {name: upload, match: {methods: [POST], path: /upload}, key: ip, limits: [8/hour], count_denied: true, cost: 3}
- {name: month, match: {path: /login}, key: ip, limits: [10/month]}
- {name: both, match: {path: /upload}, key: ip, limits: [6/month, 6/year]}
`, core.WithStore(store))
		s.want(name, ruled{method: "POST", path: "/login"}, 8, 2)
		if d := s.ask(ruled{method: "GET", path: "/login"}); d.Used != 2 {
			t.Errorf("%s: %v; want 2 used of the month", name, d)
		}
		upload := ruled{method: "POST", path: "/upload"}
		s.want(name, upload, 3, 2)
		if d := s.ask(upload); d.Limits()[0].Used != 8 {
			t.Errorf("%s: %v; want 8 used of upload, with the denial", name, d.Limits())
		}
	}
}

// An override of a rule is in Redis, where another process finds it when its first request comes.
func TestOverrideOfRules(t *testing.T) {
	t.Parallel()
	rdb := start(t)
	process := func() (*rules.Set, *service) {
		return serve(t, "rules:\n- {name: a, match: {path: /a}, key: ip, limits: [2/hour]}\n"+
			"- {name: b, key: ip, limits: [2/hour]}\n", core.WithStore(redisstore.New(rdb)), core.WithOverrides())
	}
	set, one := process()
	a, b := ruled{method: "GET", path: "/a"}, ruled{method: "GET", path: "/b"}
	one.want("the rule", a, 3, 2)
	o := core.Override{Limits: core.Limits{core.PerHour(5)}, Until: time.Now().Add(time.Hour)}
	if err := set.Override(t.Context(), "a", "192.0.2.1", o); err != nil {
		t.Fatal(err)
	}
	one.want("raised", a, 2, 2)
	other, two := process()
	two.want("in another process", a, 2, 1)
	two.want("another rule", b, 3, 2)
	all, err := other.Overrides(t.Context())
	if err != nil || len(all) != 1 || all[0].Policy != "a" || all[0].Key != "192.0.2.1" {
		t.Fatalf("%+v, %v", all, err)
	}
	if err := other.RemoveOverrideByID(t.Context(), all[0].ID); err != nil {
		t.Fatal(err)
	}
	if d := two.ask(a); d.Overridden != nil || d.Limits()[0].Quota != 2 || d.Limits()[0].Used != 5 {
		t.Errorf("%v, %v; want 5 used of 2", d, d.Limits())
	}
}

// Rules are reloaded while leases are in hand. Requests with other limits do not spend these, what was not spent comes
// back, and the units of all add up to each quota.
func TestReloadedRulesEndALease(t *testing.T) {
	t.Parallel()
	rule := func(quota int) []byte {
		return fmt.Appendf(nil, "rules: [{name: a, key: global, limits: [%d/hour]}]", quota)
	}
	file := filepath.Join(t.TempDir(), "limits.yaml")
	reload := func(quota int, set *rules.Set) {
		t.Helper()
		err := os.WriteFile(file, rule(quota), 0o600)
		if set != nil {
			err = errors.Join(err, set.Reload())
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	reload(5000, nil)
	var source event.Source
	set, err := rules.Load(file, rules.WithOptions(core.WithStore(redisstore.New(start(t))),
		core.WithTimeout(time.Minute), core.WithLease(20*time.Millisecond),
		core.WithObserver(func(_ context.Context, e core.Event) {
			if e.Outcome.IsDecision() {
				source = e.Source
			}
		})))
	if err != nil {
		t.Fatal(err)
	}
	defer set.Close()
	l, err := set.Limiter()
	if err != nil {
		t.Fatal(err)
	}
	s := &service{t: t, limiter: l}
	admitted := 0
	for _, quota := range []int{200, 800, 300, 900} { // of which the third is less than what is used
		for source = event.None; source != event.Lease; {
			if !s.ask(ruled{}).Allowed {
				t.Fatalf("denied after %d units", admitted)
			}
			admitted++
		}
		for reload(quota, set); admitted < quota; {
			if s.ask(ruled{}).Allowed { // or it has to wait until what was booked is settled
				admitted++
			}
		}
		for range 100 {
			if s.ask(ruled{}).Allowed {
				t.Fatalf("%d units admitted of %d", admitted+1, quota)
			}
			time.Sleep(time.Millisecond)
		}
		reload(5000, set)
	}
}
