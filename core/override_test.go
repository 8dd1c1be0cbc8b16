package core_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/coretest"
	"github.com/sashlimit/sash/core/event"
	"github.com/sashlimit/sash/core/store"
	"github.com/sashlimit/sash/nethttp"
)

// overrideIn sets an override for a minute.
func overrideIn(t *testing.T, l *core.Limiter, key string, o core.Override) {
	t.Helper()
	if o.Until.IsZero() {
		o.Until = time.Now().Add(time.Minute)
	}
	must(t, l.Override(t.Context(), key, o))
}

// admits takes units one by one until one is denied, and compares how many there were.
func admits(t *testing.T, l *core.Limiter, key string, want int) (denied core.Decision) {
	t.Helper()
	return admitsIn(t.Context(), t, l, key, want)
}

func admitsIn(ctx context.Context, t *testing.T, l *core.Limiter, key string, want int) (denied core.Decision) {
	t.Helper()
	for n := 0; ; n++ {
		d, err := l.Allow(ctx, key)
		must(t, err)
		if !d.Allowed || n > want {
			if n != want {
				t.Errorf("%d requests of %s were admitted, want %d; %v", n, key, want, d)
			}
			return d
		}
	}
}

func TestOverrideDeniesUntilItsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var events []core.Event
		l := newLimiterBy(t, core.Limits{core.PerMinute(5), core.InFlight(20)},
			core.ByHeader("X-Key", core.Unverified), core.WithOverrides(),
			core.WithObserver(func(_ context.Context, e core.Event) { events = append(events, e) }))
		overrideIn(t, l, "k", core.Override{Denied: true, Note: "abuse"})
		time.Sleep(10 * time.Second)
		d := admits(t, l, "k", 0)
		if d.RetryAfter != 50*time.Second || !d.Overridden.Denied || d.Never() || d.Err() == nil {
			t.Errorf("%v by %+v, want a denial for 50s", d, d.Overridden)
		}
		if e := events[0]; e.Outcome != event.Denied || e.Decision.Overridden == nil || e.Source != event.None {
			t.Errorf("event %v by %v, want a denial by the override, of no log", e, e.Decision.Overridden)
		}
		if peeked, err := l.Peek(t.Context(), "k"); peeked.Allowed || err != nil {
			t.Errorf("Peek: %v, %v", peeked, err)
		}
		if some, err := l.AllowAtMost(t.Context(), "k", 3); some.Granted > 0 || err != nil {
			t.Errorf("AllowAtMost: %v, %v", some, err)
		}
		if recorded, err := l.Record(t.Context(), "k", 1); !recorded.Allowed || err != nil {
			t.Errorf("Record: %v, %v", recorded, err)
		}
		server := nethttp.From(l)(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
		ask := func() *httptest.ResponseRecorder {
			r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
			r.Header.Set("X-Key", "k")
			w := httptest.NewRecorder()
			server.ServeHTTP(w, r)
			return w
		}
		w := ask()
		if h := w.Header(); w.Code != http.StatusTooManyRequests || h.Get("Retry-After") != "50" ||
			h.Get("RateLimit") != "" || strings.Contains(w.Body.String(), "violated") {
			t.Errorf("%d, %v, %s", w.Code, h, w.Body)
		}
		time.Sleep(50 * time.Second)
		if w := ask(); w.Code != http.StatusOK {
			t.Errorf("after the end: %d, %v", w.Code, w.Header())
		}
		admits(t, l, "k", 3) // of 5, one was recorded and one served
		if all, err := l.Overrides(t.Context()); len(all) > 0 || err != nil || l.Stats().Overrides > 0 {
			t.Errorf("overrides after the end: %v, %v, %d", all, err, l.Stats().Overrides)
		}
	})
}

// An unlimited key is recorded, so that it does not have its quota once more when the override ends.
func TestOverrideUnlimitedRecords(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, core.Limits{core.PerMinute(5), core.PerMinute(20).By(byOrganisation)}, core.WithOverrides())
		ctx := inOrganisation(t.Context(), "acme")
		overrideIn(t, l, "k", core.Override{Unlimited: true, Until: time.Now().Add(10 * time.Second)})
		d := admitsIn(ctx, t, l, "k", 20)
		if !slices.Equal(d.Violated, []string{"20-per-minute"}) || len(d.Limits()) != 1 {
			t.Errorf("%v, %v; want a denial by the organisation's limit", d, d.Limits())
		}
		time.Sleep(10 * time.Second)
		if d := admitsIn(inOrganisation(t.Context(), "other"), t, l, "k", 0); d.Limits()[0].Used != 20 {
			t.Errorf("%v, %v; want 20 used of 5", d, d.Limits())
		}
		time.Sleep(50 * time.Second)
		admitsIn(ctx, t, l, "k", 5)

		// Alone, and without a log to record in.
		for _, limit := range []core.Limit{core.PerMinute(2), core.PerMinute(2).With(core.FixedWindow)} {
			l := newLimiter(t, limit, core.WithOverrides())
			overrideIn(t, l, "k", core.Override{Unlimited: true})
			for range 10 {
				if d := askOnce(t, l, "k"); !d.Allowed || d.Granted != 1 || len(d.Limits()) > 0 {
					t.Errorf("%v: %v, %v", limit, d, d.Limits())
				}
			}
			if d := allowAtMost(t.Context(), t, l, 9, 9); len(d.Limits()) > 0 {
				t.Errorf("%v: %v, %v", limit, d, d.Limits())
			}
		}
	})
}

// A limit of an override counts as that which it replaces, since texts of limits, as on the page, name no algorithm.
// They name bursts, so a token bucket is replaced by a log, which begins with nothing used.
func TestOverrideCountsAlike(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for limit, left := range map[core.Limit]int{
			core.PerDay(2): 3, core.PerDay(2).With(core.FixedWindow): 3, core.PerDay(2).With(core.SlidingCounter): 3,
			core.TokenBucket(core.PerDay(2), 2): 5,
		} {
			l := newLimiter(t, core.Limits{limit, core.PerHour(99)}, core.WithOverrides())
			admits(t, l, "k", 2)
			overrideIn(t, l, "k", core.Override{Limits: core.Limits{core.PerDay(5), core.PerHour(50)}})
			admits(t, l, "k", left)
		}
	})
}

// An override does not lift a ban: a client whose limits deny nothing is told when the ban ends, as others are.
func TestOverrideLiftsNoBan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ann := banning(t, core.WithOverrides())
		ann.ban(30 * time.Second)
		overrideIn(t, ann.l, ann.key, core.Override{Unlimited: true})
		d, h := ann.allow(), make(http.Header)
		ann.isBan(d, 30*time.Second)
		if d.SetHeaders(h); len(h) != 2 || h.Get("Retry-After") != "30" || h.Get("Cache-Control") != "no-store" {
			t.Errorf("%v, want Retry-After and Cache-Control", h)
		}
	})
}

// What an unlimited key has taken is settled once it is known.
func TestOverrideUnlimitedSettles(t *testing.T) {
	l := newLimiter(t, core.Limits{core.PerHour(5), core.PerHour(100).Of("tokens")}, core.WithOverrides())
	overrideIn(t, l, "k", core.Override{Unlimited: true})
	d := allowCosts(t, l, core.Costs{"tokens": 600})
	noError(t, d.SettleCosts(t.Context(), core.Costs{"tokens": 30, "requests": 2}))
	if err := d.SettleCosts(t.Context(), core.Costs{"images": 1}); err == nil {
		t.Error("units that no limit counts were settled")
	}
	noError(t, l.RemoveOverride(t.Context(), "k"))
	d, err := l.Peek(t.Context(), "k")
	if all := d.Limits(); err != nil || all[0].Used != 2 || all[1].Used != 30 {
		t.Errorf("%v, %v; want 2 requests and 30 tokens used", all, err)
	}
}

type organisationKey struct{}

func inOrganisation(ctx context.Context, name string) context.Context {
	return context.WithValue(ctx, organisationKey{}, name)
}

var byOrganisation = core.ByValue(organisationKey{})

// Record keeps what an override counts, more units and for a longer time than the policy does.
func TestOverrideAndRecord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, core.PerMinute(150_000), core.WithOverrides())
		overrideIn(t, l, "k", core.Override{Limits: core.Limits{core.PerMinute(500_000)}})
		for range 5 {
			if d, err := l.Record(t.Context(), "k", 100_000); err != nil || !d.Allowed {
				t.Error(d, err)
			}
		}
		admits(t, l, "k", 0)
	})
}

// What an override brings to one key is not shared with another key of its kind, which may have an equal text.
func TestOverrideOfOneOfTwoKeys(t *testing.T) {
	byUser := core.ByValue(overrideUser{})
	for name, c := range map[string]struct{ organisation, user, override core.Limit }{
		"log":      {core.PerMonth(3), core.PerMinute(5), core.PerMinute(4)},
		"counters": {core.PerMinute(3), core.PerMonth(5), core.PerMonth(4)},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLimiter(t, core.Limits{c.organisation.By(byOrganisation), c.user.By(byUser).Named("user")},
				core.WithOverrides())
			overrideIn(t, l, "7", core.Override{By: byOrganisation, Limits: core.Limits{c.override}})
			as := func(organisation, user string) context.Context {
				return context.WithValue(inOrganisation(t.Context(), organisation), overrideUser{}, user)
			}
			if all, err := l.Overrides(t.Context()); err != nil || len(all) != 1 || all[0].By != byOrganisation {
				t.Errorf("%+v, %v; want the override of the organisation", all, err)
			}
			admitsIn(as("7", "ann"), t, l, "k", 4)
			admitsIn(as("other", "7"), t, l, "k", 3)
			if d, err := l.Peek(as("7", "7"), "k"); err != nil || d.Limits()[0].Used != 3 || d.Limits()[1].Used != 4 {
				t.Errorf("%v, %v, %v; want 3 and 4 used", d, d.Limits(), err)
			}
		})
	}
}

// The numbers of a limit are named as it is, whether another limit of the request has this name, too.
func TestOverrideWithTheNameOfAnotherLimit(t *testing.T) {
	named := func(l core.Limit) core.Limit {
		l.Name = "calls"
		return l
	}
	limits := core.Limits{named(core.PerMinute(9)), core.PerMinute(9).By(byOrganisation)}
	l := newLimiter(t, limits, core.WithOverrides())
	ctx := inOrganisation(t.Context(), "acme")
	overrideIn(t, l, "acme", core.Override{By: byOrganisation, Limits: core.Limits{named(core.PerMonth(3))}})
	if d := admitsIn(ctx, t, l, "one", 3); !slices.Equal(d.Violated, []string{"calls-2"}) {
		t.Errorf("%v, want a denial by calls-2", d)
	}
	overrideIn(t, l, "other", core.Override{Unlimited: true})
	admitsIn(ctx, t, l, "other", 0)
}

type overrideUser struct{}

func byUser(ctx context.Context) (string, error) { return ctx.Value(overrideUser{}).(string), nil }

// LimitBy and shadows: an override replaces the limits that a request has chosen, and the shadow is still reported.
func TestOverrideOfChosenLimitsAndShadows(t *testing.T) {
	var shadow *core.Decision
	l := newLimiter(t, core.LimitBy(func(ctx context.Context) core.Limits {
		return core.Limits{core.PerMinute(ctx.Value(overrideUser{}).(int))}
	}), core.WithOverrides(), core.WithName("chosen"), core.WithShadow(core.PerMinute(4)),
		core.WithObserver(func(_ context.Context, e core.Event) { shadow = e.Shadow }))
	ctx := context.WithValue(t.Context(), overrideUser{}, 2)
	admitsIn(ctx, t, l, "k", 2)
	overrideIn(t, l, "k", core.Override{Limits: core.Limits{core.PerMinute(5), core.PerHour(9).Of("tokens")}})
	admitsIn(ctx, t, l, "k", 3)
	if shadow == nil || shadow.Allowed || !slices.Equal(shadow.Violated, []string{"4-per-minute"}) {
		t.Errorf("shadow %v, want a denial", shadow)
	}
	overrideIn(t, l, "k", core.Override{Unlimited: true})
	if d, err := l.Allow(ctx, "k"); err != nil || !d.Allowed || shadow == nil || shadow.Allowed || shadow.Used != 4 {
		t.Errorf("%v, %v, shadow %v; want it allowed, and denied by the shadow", d, err, shadow)
	}
}

// The shadow of an unlimited key says nothing of the limits that deny nothing.
func TestOverrideUnlimitedWithShadow(t *testing.T) {
	for _, policy := range []core.Limits{{core.PerHour(1)}, {core.PerHour(1), core.PerHour(1).Of("tokens")}} {
		var shadow *core.Decision
		l := newLimiter(t, policy, core.WithOverrides(), core.WithShadow(core.PerHour(3)),
			core.WithObserver(func(_ context.Context, e core.Event) { shadow = e.Shadow }))
		overrideIn(t, l, "k", core.Override{Unlimited: true})
		for used := range 3 {
			costs := core.Costs{}
			if len(policy) > 1 {
				costs["tokens"] = 1
			}
			allowCosts(t, l, costs)
			if !shadow.Allowed || shadow.RetryAfter != 0 || shadow.Used != used {
				t.Errorf("%v: shadow %v, want it allowed with %d used", policy, shadow, used)
			}
		}
	}
}

// While the store does not answer, what was read last stays; a store that has lost all has none.
func TestOverrideInAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := new(coretest.FakeStore)
		one := newLimiter(t, core.PerHour(3), core.WithOverrides(), core.WithStore(s), core.WithName("p"))
		other := newLimiter(t, core.PerHour(3), core.WithOverrides(), core.WithStore(s), core.WithName("p"))
		overrideIn(t, one, "k", core.Override{Limits: core.Limits{core.PerHour(5)}, Until: time.Now().Add(time.Hour)})
		s.Fail(errors.New("down"))
		time.Sleep(time.Minute)
		if d := admits(t, one, "k", 5); !d.Degraded || d.Overridden == nil {
			t.Errorf("%v, want the override that was read before", d)
		}
		admits(t, other, "k", 3) // it has read none
		denied := core.Override{Denied: true, Until: time.Now().Add(time.Hour)}
		if err := one.Override(t.Context(), "k", denied); err == nil {
			t.Error("Override in an outage: no error")
		}
		if _, err := one.Overrides(t.Context()); err == nil {
			t.Error("Overrides in an outage: no error")
		}
		s.Fail(nil)
		time.Sleep(10 * time.Second)
		askOnce(t, other, "other")
		if d, err := other.Peek(t.Context(), "k"); err != nil || d.Overridden == nil {
			t.Errorf("after the outage: %v, %v; want the override", d, err)
		}
		*s = coretest.FakeStore{} // as a server that was restarted without its data
		time.Sleep(2 * time.Second)
		if d, err := one.Peek(t.Context(), "k"); err != nil || d.Overridden != nil {
			t.Errorf("after the store has lost all: %v by %v, %v; want no override", d, d.Overridden, err)
		}
		for _, l := range []*core.Limiter{one, other} {
			noError(t, l.Close())
		}
	})
}

// What is to be replayed of a key without a limit is bounded, as its log is.
func TestOverrideUnlimitedInALongOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := new(coretest.FakeStore)
		l := newLimiter(t, core.PerDay(3), core.WithOverrides(), core.WithStore(s))
		overrideIn(t, l, "k", core.Override{Unlimited: true})
		s.Fail(errors.New("down"))
		for range store.MaxRecorded + 100 {
			askOnce(t, l, "k")
		}
		if n := l.Stats().Backlog; n > store.MaxRecorded {
			t.Errorf("%d takes to replay, want %d at most", n, store.MaxRecorded)
		}
		l.Close()
	})
}

// Where an override lets the limits of a key deny nothing, a call of Wait with a deadline is admitted although others
// wait that do not know it yet.
func TestOverrideUnlimitedWhileOthersWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, core.PerHour(1), core.WithOverrides())
		admits(t, l, "k", 1)
		first := wait(t, l, 1)
		overrideIn(t, l, "k", core.Override{Unlimited: true})
		second := wait(t, l, 1, 10*time.Second)
		began := time.Now()
		for _, w := range []*waiter{first, second} {
			if <-w.done; w.err != nil || !w.d.Allowed || time.Since(began) > time.Second {
				t.Errorf("%v, %v after %v", w.d, w.err, time.Since(began))
			}
		}
	})
}

// A wrong override is refused with all its mistakes.
func TestOverrideMistakes(t *testing.T) {
	l := newLimiterBy(t, core.Limits{core.PerMinute(3), core.PerMinute(5).By(byOrganisation)}, core.ByIP(),
		core.WithOverrides(), core.WithCountDenied())
	soon := time.Now().Add(time.Hour)
	of := func(limits ...core.Limit) core.Override { return core.Override{Limits: limits, Until: soon} }
	for _, c := range []struct {
		key  string
		o    core.Override
		want []string
	}{
		{"192.0.2.1", core.Override{}, []string{"0 of Limits, Denied and Unlimited", "no end"}},
		{"192.0.2.1", core.Override{Denied: true, Unlimited: true, Until: time.Now().Add(-time.Second)},
			[]string{"2 of Limits", "in the past"}},
		{"192.0.2.1", core.Override{Denied: true, Until: time.Now().Add(367 * 24 * time.Hour)},
			[]string{"more than a year ahead"}},
		{"192.0.2.1", core.Override{Denied: true, Until: soon, Note: strings.Repeat("x", 201)}, []string{"201 bytes"}},
		{"192.0.2.1", of(core.PerMinute(0), core.InFlight(2)), []string{"quota", "2 in flight"}},
		{"192.0.2.1", core.Override{Limits: core.Limits{}, Until: soon}, []string{"there are no limits"}},
		{"192.0.2.1", of(core.PerMinute(9).Of("tokens")), []string{"no limit of the key counts tokens"}},
		{"192.0.2.1", of(core.PerMinute(9).By(byOrganisation)), []string{"no key of their own"}},
		{"192.0.2.1", of(core.PerMinute(9).With(core.FixedWindow), core.PerMinute(8).With(core.FixedWindow)),
			[]string{"two limits of one key count the same"}},
		{"customer 7", of(core.PerMinute(9)), []string{"ByIP finds no such key", "Decision.Override"}},
		{"customer 7", core.Override{}, []string{"ByIP finds no such key", "0 of Limits", "no end"}},
		{"", of(core.PerMinute(9)), []string{core.ErrNoKey.Error()}},
		{"x", core.Override{Denied: true, Until: soon, By: core.Global()}, []string{"no limit has this key", "Global"}},
	} {
		err := l.Override(t.Context(), c.key, c.o)
		for _, want := range c.want {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s, %+v: %v; want %q", c.key, c.o, err, want)
			}
		}
	}
	if all, err := l.Overrides(t.Context()); len(all) > 0 || err != nil {
		t.Errorf("overrides after mistakes: %v, %v", all, err)
	}

	joined := newLimiterBy(t, core.PerMinute(3), core.Join(core.ByText(), core.ByIP()), core.WithOverrides())
	err := joined.Override(t.Context(), "customer 7", of(core.PerMinute(9)))
	for _, want := range []string{"Join finds no such key", "Decision.Override", "core.By,"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("a text for a key that has none: %v; want %q", err, want)
		}
	}

	without := newLimiter(t, core.PerMinute(3))
	_, listed := without.Overrides(t.Context())
	for call, err := range map[string]error{
		"Override": without.Override(t.Context(), "k", of(core.PerMinute(9))), "Overrides": listed,
		"RemoveOverride": without.RemoveOverride(t.Context(), "k"),
	} {
		if err == nil || !strings.Contains(err.Error(), "WithOverrides") {
			t.Errorf("%s without the option: %v", call, err)
		}
	}
	shadowed := newLimiterBy(t, core.PerMinute(3), core.ByIP(), core.WithOverrides(),
		core.WithShadow(core.PerMinute(5).By(byOrganisation)))
	denied := core.Override{Denied: true, Until: soon, By: byOrganisation}
	if err := shadowed.Override(t.Context(), "acme", denied); err == nil ||
		!strings.Contains(err.Error(), "no limit has this key") {
		t.Errorf("a key of the shadow alone, whose limits an override does not change: %v", err)
	}
	if ok, err := without.Pause(t.Context(), "k", soon); ok || err != nil {
		t.Errorf("Pause without the option: %v, %v", ok, err)
	}
}

// An address is masked as that of a request; a secret hides keys.
func TestOverrideFindsKeys(t *testing.T) {
	secret := core.WithSecret([]byte("0123456789abcdef"))
	for name, c := range map[string]struct {
		key     core.Key
		text    string // names the key
		request string // the same key, for a call
		opts    []core.Option
	}{
		"prefix": {core.ByIP(), "2001:db8::1", "2001:db8::2", nil},
		"secret": {core.ByHeader("X-Key", core.Unverified), "k", "k", []core.Option{secret}},
		"first":  {core.First(core.By(byUser), core.ByIP()), "192.0.2.1", "192.0.2.1", nil},
		"global": {core.Global(), "", "", nil},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLimiterBy(t, core.PerMinute(2), c.key, append(c.opts, core.WithOverrides())...)
			o := core.Override{Limits: core.Limits{core.PerMinute(3)}, Until: time.Now().Add(time.Hour)}
			overrideIn(t, l, c.text, o)
			admits(t, l, c.request, 3)
			all, err := l.Overrides(t.Context())
			if err != nil || len(all) != 1 {
				t.Fatalf("overrides: %+v, %v", all, err)
			}
			if all[0].Key != c.text && (name != "secret" || all[0].Key != "") {
				t.Errorf("the key is %q", all[0].Key)
			}
			must(t, l.RemoveOverrideByID(t.Context(), all[0].ID))
			admits(t, l, c.request, 0)
		})
	}
}

// A text that reads like the ID of another key's override is a key of its own, for Override and RemoveOverride alike.
func TestRemoveOverrideByID(t *testing.T) {
	l := newLimiter(t, core.PerHour(1), core.WithOverrides())
	overrideIn(t, l, "ann", core.Override{Denied: true})
	all, err := l.Overrides(t.Context())
	if err != nil || len(all) != 1 {
		t.Fatal(all, err)
	}
	id := all[0].ID
	must(t, l.RemoveOverride(t.Context(), id))
	admits(t, l, "ann", 0)
	overrideIn(t, l, id, core.Override{Limits: core.Limits{core.PerHour(3)}})
	must(t, l.RemoveOverride(t.Context(), id))
	admits(t, l, id, 1)
	admits(t, l, "ann", 0)
	for range 2 {
		must(t, l.RemoveOverrideByID(t.Context(), id))
	}
	admits(t, l, "ann", 1)
	err = newLimiter(t, core.PerHour(1)).RemoveOverrideByID(t.Context(), id)
	if !errors.As(err, new(*core.ConfigError)) {
		t.Errorf("without overrides: %v, want a ConfigError", err)
	}
}

// What another release has written has no effect but a line in the log.
func TestOverrideThatCannotBeApplied(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := core.NewMemoryStore()
		other := newLimiterBy(t, core.PerMinute(2), core.ByIP(), core.WithOverrides(), core.WithStore(s),
			core.WithName("p"))
		const k = "192.0.2.9"
		overrideIn(t, other, k, core.Override{Limits: core.Limits{core.PerMinute(5)}})
		_, all, err := s.Overrides(t.Context(), "p", "")
		if err != nil || len(all) != 1 {
			t.Fatal(all, err)
		}
		all[0].Until = time.Now().Add(time.Hour)
		for unknown, limit := range map[string]string{
			"fortnight":    `"5/fortnight"`,
			"sliding line": `"5/minute", "algorithm": "sliding line"`,
		} {
			all[0].Value = `{"limits": [{"limit": ` + limit + `}]}`
			must(t, s.SetOverride(t.Context(), "p", all[0]))
			time.Sleep(time.Minute)
			lines := logged(t, func() { admits(t, other, k, 2) })
			if !strings.Contains(lines, "an override cannot be read, so it has no effect") ||
				strings.Contains(lines, "192.0.2.9") {
				t.Errorf("log: %s", lines)
			}
			if _, err := other.Overrides(t.Context()); err == nil || !strings.Contains(err.Error(), unknown) {
				t.Errorf("Overrides: %v", err)
			}
		}
	})
}

// A decision tells when its override ends, also after only that was changed, and nothing of one that changes no limit.
func TestOverriddenTellsItsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, core.PerMinute(2), core.WithOverrides())
		for _, length := range []time.Duration{time.Minute, time.Hour} {
			until := time.Now().Add(length)
			overrideIn(t, l, "k", core.Override{Limits: core.Limits{core.PerMinute(100)}, Until: until})
			if d := askOnce(t, l, "k"); d.Overridden == nil || !d.Overridden.Until.Equal(until) {
				t.Errorf("%+v, want an end at %v", d.Overridden, until)
			}
		}
		ctx := context.WithValue(t.Context(), overrideUser{}, 2)
		chosen := newLimiter(t, core.LimitBy(func(ctx context.Context) core.Limits {
			return core.Limits{core.PerMinute(ctx.Value(overrideUser{}).(int))}
		}), core.WithOverrides(), core.WithName("chosen"))
		overrideIn(t, chosen, "k", core.Override{Limits: core.Limits{core.PerMinute(9).Of("tokens")}})
		if d, err := chosen.Allow(ctx, "k"); err != nil || d.Overridden != nil {
			t.Errorf("%v by %+v, %v; want none, as nothing counts tokens", d, d.Overridden, err)
		}
	})
}

// A key is refused also if the request is asked about none of its limits but a shadow.
func TestOverrideDeniesWhatOnlyAShadowIsAsked(t *testing.T) {
	l := newLimiter(t, core.PerMinute(3), core.WithOverrides(), core.WithShadow(core.PerMinute(100).Of("tokens")))
	overrideIn(t, l, "k", core.Override{Denied: true})
	d, err := l.AllowCosts(t.Context(), "k", core.Costs{"requests": 0, "tokens": 5})
	if err != nil || d.Allowed || len(d.Limits()) > 0 {
		t.Errorf("%v, %v, %v; want a denial that no limit was asked about", d, d.Limits(), err)
	}
}
