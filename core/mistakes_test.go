package core_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/coretest"
	"github.com/sashlimit/sash/core/store"
)

// mistake is what New refuses. Each of want is a part of the text of one error, in which "…" stands for any text. The
// newline at the end of a line belongs to the text.
type mistake struct {
	policy core.Policy
	key    core.Key
	opts   []core.Option
	want   []string
}

func inLimits(p core.Policy, want ...string) mistake { return mistake{p, core.ByText(), nil, want} }
func inKey(k core.Key, want ...string) mistake       { return mistake{core.PerMinute(1), k, nil, want} }
func inOption(o core.Option, want ...string) mistake { return with(core.PerMinute(1), o, want...) }

// with is a mistake in an option for limits.
func with(p core.Policy, o core.Option, want ...string) mistake {
	return mistake{p, core.ByIP(), []core.Option{o}, want}
}

// wantMistakes compares the errors of New, or of NewFor for a web server, with what is wanted of them. There are no
// others.
func wantMistakes(
	t *testing.T, create func(core.Policy, core.Key, ...core.Option) (*core.Limiter, error), all ...mistake,
) {
	t.Helper()
	for _, m := range all {
		l, err := create(m.policy, m.key, m.opts...)
		if got := configErrors(err); l != nil || len(got) != len(m.want) {
			t.Errorf("%d errors, want %q:\n%v", len(got), m.want, err)
			continue
		}
		for i, one := range configErrors(err) {
			rest, found := one.Error()+"\n", true
			for part := range strings.SplitSeq(m.want[i], "…") {
				if found {
					_, rest, found = strings.Cut(rest, part)
				}
			}
			if !found {
				t.Errorf("%v\nwant %s", one, m.want[i])
			}
		}
	}
}

// configErrors returns the errors that err joins.
func configErrors(err error) (all []*core.ConfigError) {
	if several, ok := err.(interface{ Unwrap() []error }); ok {
		for _, e := range several.Unwrap() {
			all = append(all, configErrors(e)...)
		}
		return all
	}
	if one := (*core.ConfigError)(nil); errors.As(err, &one) {
		all = append(all, one)
	}
	return all
}

func TestMistakesInLimits(t *testing.T) {
	const quota = "the quota is out of range; choose 1 to 1000000000\n"
	const window = "is out of range; choose 1ms to 365 days"
	limit := func(quota int, window time.Duration) core.Limit { return core.Limit{Quota: quota, Window: window} }
	named := func(name string, l core.Limit) core.Limit { l.Name = name; return l }
	nine := make(core.Limits, 9)
	for i := range nine {
		nine[i] = limit(5, time.Duration(i+1)*time.Second)
	}
	wantMistakes(t, core.New,
		inLimits(nil, "sash: policy(nil): there is no policy"),
		inLimits(core.Limits(nil), "sash: policy(nil): there is no policy"),
		inLimits(core.Limits{}, "sash: limits(none): there are no limits"),
		inLimits(core.LimitBy[*http.Request](nil), "sash: LimitBy(nil): "),
		inLimits(core.Limit{}, quota),
		inLimits(core.PerSecond(-1), quota),
		inLimits(core.PerSecond(core.MaxQuota+1), quota),
		inLimits(core.PerMonth(0), quota),
		inLimits(limit(1, 0), "the window 0s "+window),
		inLimits(limit(1, -time.Second), "the window -1s "+window),
		inLimits(limit(1, core.MaxWindow+time.Second), "the window 8760h0m1s "+window),
		inLimits(limit(1, time.Second+1), "the window 1.000000001s has a fraction of a microsecond; use whole"),
		// A number without a unit is taken for nanoseconds, and the error asks for seconds.
		inLimits(limit(5, 60), "the window 60ns "+window+" (8760h); if you mean 60 seconds, write 60*time.Second\n"),
		inLimits(limit(5, 500*time.Microsecond), "the window 500µs "+window+" (8760h)\n"),
		with(core.PerMinute(5), core.WithBan(5, 60, time.Minute), "the window 60ns …write 60*time.Second\n"),
		inLimits(named(strings.Repeat("a", 65), core.PerSecond(1)), "…is not valid; use 1 to 64 letters"),
		inLimits(core.Limits{core.PerSecond(1), core.PerSecond(1)}, "two limits of one key count the same"),
		with(core.PerMinute(5), core.WithShadow(core.InFlight(4)), "…leave this limit out"),
		inLimits(nine, "sash: limits(9): there are too many limits; use at most 8"),
		inLimits(core.Limits{core.PerMinute(1), core.PerHour(1).By(core.ByHeader("a b", nil))},
			`ByHeader("a b"): …letters, digits and '-'`, `ByHeader("a b", nil): `),
		inLimits(core.PerMinute(1).By(core.Key{}), "By(no key): …core.Global()"),

		inLimits(core.PerMonth(5).In(nil), "the time zone is nil"),
		inLimits(core.PerMinute(5).In(time.UTC), "only hours, days and longer calendar"),
		inLimits(core.PerDay(5).From(time.Now()), "only calendar periods have an anchor"),
		inLimits(core.PerMonth(5).With(core.SlidingCounter), "a sliding counter cannot count"),
		inLimits(core.TokenBucket(core.PerMonth(5), 3), "the refill of core.TokenBucket"),
		inLimits(named("a b", core.PerDay(1)).In(time.UTC), `the name "a b" is not valid; use 1 to`),

		inLimits(core.TokenBucket(core.PerSecond(10), 0), "the burst 0 is out of range; choose 1 to 1000000000 units"),
		inLimits(core.TokenBucket(core.PerSecond(10), -1), "the burst -1 is out of range"),
		inLimits(core.TokenBucket(core.PerSecond(10), core.MaxQuota+1), "the burst 1000000001 is out of range"),
		inLimits(core.TokenBucket(core.PerDay(1), 366), "takes longer than 365d to fill"),
		inLimits(core.TokenBucket(core.PerSecond(0), 1), quota),
		inLimits(core.TokenBucket(core.TokenBucket(core.PerSecond(10), 5), 5), "a plain rate"),
		inLimits(core.TokenBucket(core.PerSecond(10).With(core.FixedWindow), 5), "a plain rate"),
		inLimits(core.TokenBucket(core.PerSecond(10), 5).With(core.FixedWindow), "a fixed window has no burst"),
		inLimits(core.TokenBucket(core.PerSecond(10), 5).With(core.SlidingLog), "a sliding log has no burst"),
		inLimits(core.PerSecond(10).With(core.Algorithm(9)), "there is no algorithm 9"),
		inLimits(core.PerSecond(10).With(store.TokenBucket), "the burst 0 is out of range"),

		inLimits(core.InFlight(0), "limits(0 in flight): …1 to 1000000000 requests"),
		inLimits(core.InFlight(core.MaxQuota+1), "1 to 1000000000 requests"),
		inLimits(core.Limits{core.InFlight(4).In(time.UTC), core.InFlight(5).From(time.Now())},
			"limits(4 in flight): only hours, days", "limits(5 in flight): only calendar periods"),
		inLimits(core.PerMinute(1).Lease(time.Minute), "1/minute…leave Lease out"),
		inLimits(core.InFlight(1).Lease(time.Second-1), "1s to 1h0m0s"),
		inLimits(core.InFlight(1).Lease(time.Hour+1), "1s to 1h0m0s"),
		inLimits(inFlightWithin(-1, time.Minute).Lease(2*time.Hour), "limits(-1 in flight): …1 to 1000000000 requests",
			"limits(-1 in flight): …leave out the 1m0s", "the lease 2h0m0s …1s to 1h0m0s"),
		inLimits(core.InFlight(4).With(core.FixedWindow), "cannot count requests in flight"),
		inLimits(core.TokenBucket(core.InFlight(4), 2), "cannot count requests in flight", "is not a rate"),

		inLimits(core.PerMinute(5).Of("T"), `the unit "T" is not valid`),
		inLimits(core.PerMinute(5).Of(""), `the unit "" is not valid`),
		inLimits(core.InFlight(5).Of("tokens"), "InFlight counts requests only"),
	)
	newLimiter(t, core.TokenBucket(core.PerDay(1), 365)) // it is full within 365 days
}

func inFlightWithin(quota int, window time.Duration) core.Limit {
	l := core.InFlight(quota)
	l.Window = window
	return l
}

func TestMistakesInKeys(t *testing.T) {
	wantMistakes(t, core.New,
		inKey(core.Key{}, "sash: key(none): "),
		inKey(core.Join(), "sash: Join: there are no keys"),
		inKey(core.First(), "sash: First: there are no keys"),
		inKey(core.ByHeader("", core.Unverified), `sash: ByHeader(""): `),
		inKey(core.ByAddr[context.Context](nil), "ByAddr(nil): the function is nil"),
		inKey(core.ByForwardedIP(), "ByForwardedIP: there are no proxies to trust; name them"),
		inKey(core.ByForwardedIP("0.0.0.0/0", "::/0", "::ffff:0.0.0.0/96", "::ffff:0:0/90"),
			`ByForwardedIP("0.0.0.0/0")`, `("::/0")`, `("::ffff:0.0.0.0/96")`, `("::ffff:0:0/90")`),
		inKey(core.ByForwarded("10.0.0.0/33", "10.0.0", "proxy.example", "fe80::1%eth0", "fe80::%eth0/10", "", "*"),
			`ByForwarded("10.0.0.0/33"): this is not an address; write an address`, `("10.0.0")`, `("proxy.example")`,
			`("fe80::1%eth0")`, `("fe80::%eth0/10")`, `("")`, `("*")`),
		inKey(core.ByIPHeader("x-forwarded-for", "10.0.0.1"), "this field is a list; use ByForwardedIP"),
		inKey(core.ByIPHeader("Forwarded", "10.0.0.1"), "this field is a list; use ByForwarded"),
		inKey(core.ByIPHeader("", "10.0.0.1"), `ByIPHeader("")`),
		inKey(core.ByIPHeader("a b", "x"), `ByIPHeader("x")`, `ByIPHeader("a b")`),
		inKey(core.ByIPHeader("CF-Connecting-IP"), "ByIPHeader: there are no proxies"),
	)
	for _, key := range []core.Key{
		core.ByForwardedIP("10.0.0.1", "10.1.2.3/8", "::1", "2001:db8::/32", "unix"),
		core.ByForwardedIP("::ffff:10.0.0.0/104", "::ffff:10.0.0.1"),
	} {
		newLimiterBy(t, core.PerMinute(1), key)
	}
}

func TestMistakesInOptions(t *testing.T) {
	ip, id, all := core.ByIP(), core.ByHeader("X-API-Key", core.Unverified), core.Global()
	wantMistakes(t, core.New,
		inOption(core.WithStore(nil), "WithStore(nil)"),
		inOption(core.WithName("a{b}"), "WithName(…): the name is not valid"),
		inOption(core.WithName(strings.Repeat("a", 49)), "WithName(…): the name is not valid"),
		inOption(core.WithTimeout(0), "WithTimeout(0s)"),
		inOption(core.WithFailure(7), "WithFailure(7): …FailLocal"),
		inOption(core.WithDenyCache(-1), "WithDenyCache(-1ns)"),
		inOption(core.WithStoreObserver(nil), "WithStoreObserver(nil)"),
		inOption(core.WithSpread(-1), "WithSpread(-1ns)"),
		mistake{core.PerMinute(1), ip, []core.Option{core.WithCountDenied(), core.WithSpread(0)}, []string{
			"WithSpread(with WithCountDenied)",
		}},
		inOption(core.WithShadow(core.InFlight(1)), "WithShadow(1 in flight): …cannot be tried out"),
		with(core.InFlight(1), core.WithCostOf("requests", func(context.Context) int { return 1 }),
			"WithCostOf(requests): …leave it out"),
		inOption(core.WithLease(0), "WithLease(0s): …out of range"),
		inOption(core.WithLease(time.Millisecond), "WithLease(1ms): …out of range"),
		inOption(core.WithLease(2*time.Second), "WithLease(2s): …out of range"),

		inOption(core.WithDenyList(core.Key{}, "a"), "WithDenyList(no key): …core.ByIP()"),
		inOption(core.WithAllowList(ip), "WithAllowList(no entries): the list is empty"),
		inOption(core.WithDenyList(id), "WithDenyList(no entries): …leave the option out"),
		inOption(core.WithAllowList(ip, "192.0.2.1", "monitor"), `WithAllowList("monitor"): …"192.0.2.0/24"`),
		inOption(core.WithAllowList(core.First(ip, core.ByForwardedIP("10.0.0.0/8")), "monitor"),
			`WithAllowList("monitor"): …"192.0.2.0/24"`),
		inOption(core.WithDenyList(core.ByForwardedIP("10.0.0.0/8"), "unix"), `WithDenyList("unix"): …"192.0.2.0/24"`),
		inOption(core.WithAllowList(ip, "", "192.0.2.1-9", "192.0.2.1:80"), `WithAllowList(""): …"192.0.2.0/24"`,
			`WithAllowList("192.0.2.1-9"): …"192.0.2.0/24"`, `WithAllowList("192.0.2.1:80"): …"192.0.2.0/24"`),
		inOption(core.WithAllowList(ip, "fe80::1%eth0", "192.0.2.0/33"),
			`WithAllowList("fe80::1%eth0"): …"192.0.2.0/24"`, `WithAllowList("192.0.2.0/33"): …"192.0.2.0/24"`),
		inOption(core.WithDenyList(ip, "0.0.0.0/0"), `WithDenyList("0.0.0.0/0"): …every address…"192.0.2.0/24"`),
		inOption(core.WithAllowList(ip, "::/0", "::ffff:0:0/96"),
			`WithAllowList("::/0"): …every address…"192.0.2.0/24"`,
			`WithAllowList("::ffff:0:0/96"): …every address…"192.0.2.0/24"`),
		inOption(core.WithAllowList(id, "a", ""), `WithAllowList(""): …is the variable it comes from set?`),
		inOption(core.WithAllowList(core.First(core.ByValue(userKey{}), ip), ""),
			`WithAllowList(""): …is the variable it comes from set?`),
		inOption(core.WithAllowList(core.ByHeader("a b", core.Unverified), "a"),
			`ByHeader("a b"): …letters, digits and '-'`),
		inOption(core.WithDenyList(core.First(core.By[*http.Request](nil), ip), "192.0.2.1"),
			"By(nil): …pass a function"),
		mistake{core.PerMinute(1), ip, []core.Option{
			core.WithAllowList(ip, "one", "two"), core.WithDenyList(ip, "three"),
		}, []string{`WithAllowList("one")`, `WithAllowList("two")`, `WithDenyList("three")`}},
		with(core.Limits{core.PerMinute(100).By(all), core.InFlight(4)}, core.WithBan(2, time.Minute, time.Hour),
			"sash: WithBan(100/minute,4 in flight): bans need a limit that has a window and the limiter's key; add "+
				"one, or leave the option out\n"),
	)
}

func TestMistakesInBans(t *testing.T) {
	const (
		m, most = time.Minute, core.MaxWindow / 128

		length  = ": the length of the first ban is out of range; choose 1ms to 68h26m15s, in whole microseconds\n"
		denials = ": the number of denials is out of range; choose 1 to 1000000000\n"
		window  = " is out of range; choose 1ms to 365 days (8760h)\n"
	)
	wantMistakes(t, core.New,
		inOption(core.WithBan(0, m, m), "sash: WithBan(0, 1m0s, 1m0s)"+denials),
		inOption(core.WithBan(-1, m, m), "sash: WithBan(-1, 1m0s, 1m0s)"+denials),
		inOption(core.WithBan(core.MaxQuota+1, m, m), "sash: WithBan(1000000001, 1m0s, 1m0s)"+denials),
		inOption(core.WithBan(5, 0, m), "sash: WithBan(5, 0s, 1m0s): the window 0s"+window),
		inOption(core.WithBan(5, m+1, m), "sash: WithBan(5, 1m0.000000001s, 1m0s): the window 1m0.000000001s has a "+
			"fraction of a microsecond; use whole microseconds\n"),
		inOption(core.WithBan(5, core.MaxWindow+time.Second, m),
			"sash: WithBan(5, 8760h0m1s, 1m0s): the window 8760h0m1s"+window),
		inOption(core.WithBan(5, m, 0), "sash: WithBan(5, 1m0s, 0s)"+length),
		inOption(core.WithBan(5, m, -time.Second), "sash: WithBan(5, 1m0s, -1s)"+length),
		inOption(core.WithBan(5, m, most+time.Microsecond), "sash: WithBan(5, 1m0s, 68h26m15.000001s)"+length),
		inOption(core.WithBan(5, m, time.Second+1), "sash: WithBan(5, 1m0s, 1.000000001s)"+length),
	)
	newLimiter(t, core.PerMinute(1), core.WithBan(1, time.Millisecond, time.Millisecond))
	newLimiter(t, core.PerMinute(1), core.WithBan(core.MaxQuota, core.MaxWindow, most))
}

// algorithmLimits returns a limit of each algorithm that counts, by its name.
func algorithmLimits(l core.Limit) map[string]core.Limit {
	all := make(map[string]core.Limit)
	for _, a := range store.Algorithms()[1:] {
		if all[a.String()] = l.With(a); a == store.TokenBucket {
			all[a.String()] = core.TokenBucket(l, l.Quota)
		}
	}
	return all
}

// Options that suit none of the limits are errors that name the option and the algorithm. Beside a limit that they suit
// they apply to that one.
func TestMistakesInAlgorithms(t *testing.T) {
	countDenied, failLocal := core.WithCountDenied(), core.WithFailure(core.FailLocal)
	lease := core.WithLease(20 * time.Millisecond)
	for name, limit := range algorithmLimits(core.PerMinute(3)) {
		wantMistakes(t, core.New,
			with(limit, countDenied, "WithCountDenied("+name+"): …cannot count denials"),
			with(limit, failLocal, "WithFailure(FailLocal)("+name+"): …outage"),
			with(limit, lease, "WithLease("+name+"): …sliding logs"),
			mistake{limit, core.ByText(), []core.Option{countDenied, failLocal}, []string{
				"WithCountDenied(" + name + ")", "WithFailure(FailLocal)(" + name + ")",
			}},
		)
		newLimiter(t, core.Limits{core.PerHour(9), limit}, countDenied, failLocal, lease)
		if _, err := newLimiter(t, limit).Log(t.Context(), "k"); len(configErrors(err)) != 1 {
			t.Errorf("Log of a %s: %v", name, err)
		}
	}
}

// oneLog is a store that decides over one log at a time. It has no optional methods.
type oneLog struct{ core.Store }

func (oneLog) Validate(plans ...*store.Limit) error { return store.OneLog(plans) }

// oneSlotLog is one that holds slots.
type oneSlotLog struct {
	oneLog
	store.Settler
	store.Renewer
}

// narrow is a store for quotas of at most 100.
type narrow struct{ store.Full }

func (narrow) Validate(plans ...*store.Limit) error {
	for _, l := range plans {
		if l.Algorithm == store.SlidingLog && l.Quota > 100 {
			return &core.ConfigError{Option: "limits", Value: l.String(), Problem: "at most 100"}
		}
	}
	return nil
}

// wrong is a store with two mistakes of its own, whatever the limits are.
type wrong struct{ store.Full }

func (wrong) Validate(...*store.Limit) error {
	return errors.Join(&core.ConfigError{Option: "one", Value: "1"}, &core.ConfigError{Option: "two", Value: "2"})
}

// What a store cannot do is an error that says so, once.
func TestMistakesOfStores(t *testing.T) {
	full := core.NewMemoryStore()
	plain, one, slots := struct{ core.Store }{full}, oneLog{full}, oneSlotLog{oneLog{full}, full, full}
	on := func(s core.Store, p core.Policy, want string, opts ...core.Option) mistake {
		return mistake{p, core.ByIP(), append(opts, core.WithStore(s)), []string{want}}
	}
	minute, lease := core.PerMinute(1), core.WithLease(20*time.Millisecond)
	wantMistakes(t, core.New,
		on(core.NewMemoryStore(core.WithMaxKeys(0)), minute, "WithMaxKeys(0)"),
		on(one, core.InFlight(1), "InFlight(core_test.oneLog): …store.Renewer…store.Full"),
		on(slots, core.Limits{core.InFlight(1), minute}, "limits(2): …one log at a time"),
		on(one, core.Limits{minute, minute.By(core.Global())}, "limits(2): …one log at a time"),
		on(plain, minute, "WithLease(…): …store.Settler", lease),
		on(plain, minute, "WithOverrides(…): …store.Overrider", core.WithOverrides()),
		on(plain, minute, "WithSpread(struct { store.Store })", core.WithSpread(0)),
		mistake{minute, core.ByIP(), []core.Option{
			core.WithStore(wrong{full}), core.WithShadow(core.PerMinute(9)), core.WithBan(1, time.Minute, time.Minute),
		}, []string{"one(1)", "two(2)"}},
		on(narrow{full}, core.PerMinute(100), "at most 100", core.WithBan(101, time.Minute, time.Minute)),
	)
	for name, limit := range algorithmLimits(core.PerMinute(3)) {
		wantMistakes(t, core.New, on(one, limit, "With("+name+"): …this algorithm"))
	}
	newLimiter(t, core.PerMinute(100), core.WithStore(narrow{full}), core.WithBan(100, time.Minute, time.Minute))
	newLimiter(t, minute, core.WithStore(new(coretest.FakeStore)), lease)
	l := newLimiter(t, core.InFlight(1), core.WithStore(slots))
	d := allowed(t, l, "k", true)
	allowed(t, l, "k", false)
	noError(t, d.Release(t.Context()))
	chosen := newLimiter(t, core.LimitBy(func(context.Context) core.Limits { return core.Limits{core.InFlight(1)} }),
		core.WithStore(one))
	if d, err := chosen.Allow(t.Context(), "k"); d.Allowed || !errors.As(err, new(*core.ConfigError)) {
		t.Errorf("%+v, %v", d, err)
	}
}

// What a web server cannot use is an error, such as a callback for another framework, which is named once.
func TestMistakesForAFramework(t *testing.T) {
	type foreign struct{}
	limits := core.Limits{core.PerMinute(5), core.PerMinute(50).Of("tokens"), core.PerMinute(100).Of("bytes")}
	size := func(*http.Request) int { return 30 }
	tokens, bytes := core.WithCostOf("tokens", size), core.WithCostOf("bytes", size)
	units := func(p core.Policy, want string, opts ...core.Option) mistake {
		return mistake{p, core.ByIP(), opts, []string{want}}
	}
	skip := core.WithSkip(func(int) bool { return true })
	wantMistakes(t, core.NewFor[*http.Request],
		units(core.PerMinute(5), "WithSkip(func(int))", skip),
		units(core.PerMinute(5), "WithSkip(func(int))", skip, core.WithShadow(core.PerMinute(2))),
		inOption(core.WithDenyList(core.By(func(*foreign) (string, error) { return "", nil }), "a"),
			"By(func(*core_test.foreign))"),
		units(limits, "WithCostOf(tokens): no function returns", bytes),
		units(limits, "WithCostOf(characters): no limit counts", tokens, bytes, core.WithCostOf("characters", size)),
		units(limits, `WithCostOf("Tokens"): the unit is not valid`, tokens, bytes, core.WithCostOf("Tokens", size)),
		units(limits, "WithCostOf(nil)", tokens, bytes, core.WithCostOf[*http.Request]("tokens", nil)),
		units(limits, "the requests of this middleware are", bytes,
			core.WithCostOf("tokens", func(int) int { return 1 })),
		units(core.PerMinute(5).Of("tokens"), "WithCostOf(tokens): WithCost is of the same unit", tokens,
			core.WithCost(size)),
		units(core.PerMinute(5), "WithCostOf(requests): WithCost is of the same unit",
			core.WithCostOf("requests", size), core.WithCost(size)),
		units(core.Limits{core.PerMinute(5).Of("tokens"), core.PerMinute(5).Of("bytes")},
			"WithCost(without a unit): the limits count several", bytes, core.WithCost(size)),
	)
}

// What cannot be asked of a limiter or of a decision is an error that says why.
func TestMistakesOfCalls(t *testing.T) {
	ctx, end := t.Context(), time.Now().Add(time.Hour)
	log := func(p core.Policy, k core.Key) error {
		_, err := newLimiterBy(t, p, k, core.WithName("p")).Log(ctx, "k")
		return err
	}
	addresses := newLimiterBy(t, core.PerMinute(1), core.ByIP(), core.WithOverrides())
	_, paused := addresses.Pause(ctx, "k", end)
	var none core.Decision
	counted := askOnce(t, newLimiter(t, core.PerMinute(1), core.WithOverrides()), "k")
	denied := core.Override{Denied: true, Until: end}
	other := denied
	other.By = core.Global()
	noLimits := core.LimitBy(func(context.Context) core.Limits { return core.Limits{core.PerMinute(0)} })
	for want, err := range map[string]error{
		"key(a text): ByIP finds no such key":            log(core.PerMinute(1), core.ByIP()),
		"Log(k): no limit of the key has a log":          log(core.PerMinute(1).By(core.Global()), core.ByText()),
		"LimitBy(0/minute): the quota is out of range":   log(noLimits, core.ByText()),
		"Pause(a text): ByIP finds no such key":          paused,
		"Override(a decision): the request was not":      none.Override(ctx, denied),
		"Override(Global): no limit has this key":        counted.Override(ctx, other),
		"Settle(-1): the cost is out of range":           counted.Settle(ctx, -1),
		"MemoryStore(zero): the zero MemoryStore cannot": new(core.MemoryStore).Validate(),
		"Log(without a unit): the limits count several units: a, b": log(
			core.Limits{core.PerMinute(1).Of("a"), core.PerMinute(1).Of("b")}, core.ByText()),
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v; want %q", err, want)
		}
	}
	if err := errors.Join(none.Settle(ctx, 1), none.SettleCosts(ctx, core.Costs{"a": 1})); err != nil {
		t.Errorf("a decision that no limit has made: %v", err)
	}
}
