package core_test

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/adapter"
	"github.com/sashlimit/sash/core/coretest"
	"github.com/sashlimit/sash/nethttp"
)

// madeAt makes a limiter and tells the place as the log does.
func madeAt(t *testing.T, p core.Policy, k core.Key, opts ...core.Option) {
	t.Helper()
	if _, err := core.New(p, k, opts...); err != nil {
		t.Fatal(err)
	}
}

func here() string {
	var pcs [1]uintptr
	runtime.Callers(2, pcs[:])
	frame, _ := runtime.CallersFrames(pcs[:]).Next()
	return fmt.Sprintf("core/sharing_test.go:%d", frame.Line)
}

var globalStore coretest.FakeStore

// Limiters of equal limits that are not named share their logs where they share a store. The log tells where both
// were made.
func TestWarnsOfSharedLogs(t *testing.T) {
	const shares = "two limiters share a store and a name, and so their logs"
	for name, store := range map[string]core.Store{"memory": core.NewMemoryStore(),
		"another": new(coretest.FakeStore), "global": &globalStore} {
		var first, second string
		got := ownPlaces(t, func() {
			nethttp.New(core.PerMinute(100), core.ByIP(), core.WithStore(store))
			first = here()
			core.NewFor[context.Context](core.PerMinute(100), core.ByIP(), core.WithStore(store))
			second = here()
		})
		at := func(s string, back int) string { // the line before here
			var line int
			fmt.Sscanf(s[strings.LastIndexByte(s, ':')+1:], "%d", &line)
			return fmt.Sprintf("core/sharing_test.go:%d", line-back)
		}
		for _, want := range []string{shares, "level=WARN", "policy=100-per-minute", "first=" + at(first,
			1) + " ", "second=" + at(second, 1) + " ", "core.WithName"} {
			if !strings.Contains(got, want) {
				t.Errorf("%s: the log lacks %s:\n%s", name, want, got)
			}
		}
		if strings.Count(got, "\n") != 1 {
			t.Errorf("%s: want one line:\n%s", name, got)
		}
	}
}

func TestSharedLogsByKey(t *testing.T) {
	by := core.By(func(context.Context) (string, error) { return "a", nil })
	one, two := core.ByHeader("X-One", core.Unverified), core.ByHeader("X-Two", core.Unverified)
	kind := func(kind string) core.Key {
		return core.KeyOf(kind, func(adapter.Request) (string, string, error) { return "", "a", nil })
	}
	v6, v4 := core.WithIPv6Prefix(48), core.WithIPv4Prefix(24)
	named := core.WithName("api")
	tenPerHour := core.LimitBy(func(context.Context) core.Limits { return core.Limits{core.PerHour(10)} })
	type made struct {
		policy core.Policy
		key    core.Key
		opts   []core.Option
	}
	is := func(k core.Key, opts ...core.Option) made { return made{core.PerMinute(100), k, opts} }
	for _, c := range []struct {
		desc  string
		a, b  made
		warns bool
	}{
		{"ByIP twice", is(core.ByIP()), is(core.ByIP()), true},
		{"ByIP, ByForwardedIP", is(core.ByIP()), is(core.ByForwardedIP("10.0.0.0/8")), true},
		{"ByIP, ByHeader", is(core.ByIP()), is(one), false},
		{"a header twice", is(one), is(core.ByHeader("x-one", core.Unverified)), true},
		{"two headers", is(one), is(two), false},
		{"By, ByValue", is(by), is(core.ByValue("user")), true},
		{"By, ByIP", is(by), is(core.ByIP()), false},
		{"Global twice", is(core.Global()), is(core.Global()), true},
		{"Global, ByIP", is(core.Global()), is(core.ByIP()), false},
		{"a kind twice", is(kind("jwt")), is(kind("jwt")), true},
		{"two kinds", is(kind("jwt")), is(kind("saml")), false},
		{"First, its second key", is(core.First(one, core.ByIP())), is(core.ByIP()), true},
		{"First, another key", is(core.First(one, core.ByIP())), is(two), false},
		{"Join twice", is(core.Join(one, core.ByIP())), is(core.Join(one, core.ByIP())), true},
		{"Join, other order", is(core.Join(one, core.ByIP())), is(core.Join(core.ByIP(), one)), false},
		{"Join, longer", is(core.Join(one)), is(core.Join(one, one)), false},
		{"Join, its part", is(core.Join(core.ByIP())), is(core.ByIP()), false},
		{"another IPv6 prefix", is(core.ByIP()), is(core.ByIP(), v6), true}, // IPv4 clients meet
		{"other prefixes", is(core.ByIP()), is(core.ByIP(), v6, v4), false},
		{"other prefixes within Join", is(core.Join(core.ByIP())), is(core.Join(core.ByIP()), v6, v4), false},
		{"two names", is(core.ByIP(), core.WithName("a")), is(core.ByIP(), core.WithName("b")), false},
		{"one name on purpose", is(core.ByIP(), named), is(core.ByIP(), named), false},
		{"one of them named", is(core.ByIP(), core.WithName("100-per-minute")), is(core.ByIP()), true},
		{"one named otherwise", is(core.ByIP(), named), is(core.ByIP()), false},
		{"other limits", is(core.ByIP()), made{core.PerMinute(99), core.ByIP(), nil}, false},
		{"LimitBy twice", made{tenPerHour, core.ByIP(), nil}, made{tenPerHour, core.ByIP(), nil}, true},
		{"a name, other limits", is(core.ByIP(), named), made{core.PerMinute(99), core.ByIP(),
			[]core.Option{named}}, true},
		{"a name, other limits, other keys", is(core.ByIP(), named), made{core.PerMinute(99), one,
			[]core.Option{named}}, false},
		{"two secrets", is(core.ByIP(), core.WithSecret([]byte("one secret of 16"))), is(core.ByIP(),
			core.WithSecret([]byte("two secret of 16"))), false},
		{"one secret", is(core.ByIP(), core.WithSecret([]byte("one secret of 16"))), is(core.ByIP(),
			core.WithSecret([]byte("one secret of 16"))), true},
	} {
		for order := range 2 {
			a, b := c.a, c.b
			if order == 1 {
				a, b = b, a
			}
			got := ownPlaces(t, func() {
				store := new(coretest.FakeStore)
				madeAt(t, a.policy, a.key, append(a.opts, core.WithStore(store))...)
				madeAt(t, b.policy, b.key, append(b.opts, core.WithStore(store))...)
			})
			if n := strings.Count(got, "share a store and a name"); n > 1 || (n == 1) != c.warns {
				t.Errorf("%s: logged, want a warning %v:\n%s", c.desc, c.warns, got)
			}
		}
		if got := logged(t, func() { // apart
			madeAt(t, c.a.policy, c.a.key, c.a.opts...)
			madeAt(t, c.b.policy, c.b.key, c.b.opts...)
			madeAt(t, c.a.policy, c.a.key, append(c.a.opts, core.WithStore(new(coretest.FakeStore)))...)
			madeAt(t, c.b.policy, c.b.key, append(c.b.opts, core.WithStore(new(coretest.FakeStore)))...)
		}); got != "" {
			t.Errorf("%s, each on a store of its own: logged\n%s", c.desc, got)
		}
	}
}

// ownPlaces is logged where the places are new ones each time, since a pair of places is told of once.
func ownPlaces(t *testing.T, f func()) string {
	t.Helper()
	core.ForgetSharing()
	return logged(t, f)
}

// A pair of places is told of once, however often limiters are made there.
func TestSharedLogsAreToldOnce(t *testing.T) {
	got := ownPlaces(t, func() {
		for range 5 {
			store := core.NewMemoryStore()
			for range 3 {
				core.New(core.PerMinute(7), core.Global(), core.WithStore(store))
			}
			core.New(core.PerMinute(7), core.Global(), core.WithStore(store))
		}
	})
	if n := strings.Count(got, "\n"); n != 2 { // of the first place with itself, and with the second
		t.Errorf("%d lines, want 2:\n%s", n, got)
	}
}

// The registry does not grow with the limiters made at one place.
func TestSharingIsBounded(t *testing.T) {
	core.ForgetSharing()
	store := core.NewMemoryStore()
	for range 1000 {
		madeAt(
			t,
			core.PerMinute(7),
			core.Join(core.ByIP(), core.Global()),
			core.WithStore(store),
			core.WithName("same"),
		)
	}
	if n := core.Sharers(); n != 1 {
		t.Errorf("%d limiters are remembered, want 1", n)
	}
	runtime.KeepAlive(store)
}
