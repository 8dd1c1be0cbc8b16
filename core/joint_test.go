package core_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/adapter"
)

type (
	orgKey    struct{}
	personKey struct{}
)

// inOrg returns a context of a user's call that names the organisation.
func inOrg(ctx context.Context, org string) context.Context {
	return context.WithValue(ctx, orgKey{}, org)
}

// What a limit's key lacks is told when it is known: a framework, a request, or the key itself.
func TestKeysOfLimitsThatAreMissing(t *testing.T) {
	org := core.By(func(*http.Request) (string, error) { return "acme", nil })
	// A key for another framework is told when an adapter binds the limiter.
	l := newLimiterBy(t, core.PerMinute(1).By(org), core.ByIP())
	if _, _, err := core.Bind[*int](l, func() {}, func() {}); err == nil || !strings.Contains(err.Error(), "By(func(") {
		t.Errorf("bound for another framework: %v", err)
	}
	// A request without such a key is refused.
	named := newLimiterBy(t, core.PerMinute(1).By(core.ByHeader("Org", core.Unverified)), core.ByIP())
	if d, err := named.Check(from("192.0.2.1:1")); !errors.Is(err, core.ErrNoKey) || d.Allowed {
		t.Errorf("%v, %v; want no key", d, err)
	}
	// Without a request, such a key is an error that names it.
	if d, err := l.Allow(t.Context(), "192.0.2.1"); !errors.Is(err, core.ErrNoKey) || d.Allowed ||
		!strings.Contains(err.Error(), "the limit 1/minute, made by By: ") {
		t.Errorf("%v, %v", d, err)
	}
}

// A handler may overwrite the memory that the keys were read from: a refund still finds all logs.
func TestKeysOfLimitsInReusedMemory(t *testing.T) {
	user, org := []byte("ann"), []byte("acme")
	in := func(memory []byte) core.Key {
		return core.By(func(context.Context) (string, error) { return unsafeString(memory), nil })
	}
	l := newLimiterBy(t, core.Limits{core.PerHour(1), core.PerDay(1).By(in(org))}, in(user),
		core.WithRefund(func(context.Context, int) bool { return true }))
	for range 3 {
		copy(user, "ann")
		copy(org, "acme")
		d := checkOnce(t, l, from("192.0.2.1:1"), true)
		d.Serve(func() int {
			copy(user, "zzz")
			copy(org, "zzzz")
			return 200
		})
	}
}

// must ends the test if there is an error, and noError has it fail.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func noError(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Error(err)
	}
}

func newLimiterBy(t *testing.T, p core.Policy, k core.Key, opts ...core.Option) *core.Limiter {
	t.Helper()
	l, err := core.New(p, k, opts...)
	must(t, err)
	return l
}

// A key's kind is not told apart from another by capitals alone, because names of logs have none.
func TestKeysWhoseKindsDifferInCapitals(t *testing.T) {
	same := core.KeyOf("byvalue", func(adapter.Request) (scope, text string, err error) { return "", "acme", nil })
	limits := core.Limits{core.PerHour(1).By(core.ByValue(orgKey{})), core.PerDay(1).By(same)}
	l := newLimiterBy(t, limits, core.ByText())
	if d, err := l.Allow(inOrg(t.Context(), "acme"), "k"); err != nil || !d.Allowed {
		t.Errorf("%v, %v", d, err)
	}
}
