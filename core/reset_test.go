package core_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/adapter"
	"github.com/sashlimit/sash/core/store"
)

// checkOnce checks a request, and whether it is allowed.
func checkOnce(t *testing.T, l *core.Limiter, r web, want bool) core.Decision {
	t.Helper()
	d, err := l.Check(r)
	if err != nil || d.Allowed != want {
		t.Errorf("%+v, %v; want allowed %v", d, err, want)
	}
	return d
}

// A reset of a text that named no request's key did nothing, and said nothing.
func TestResetOfAKeyWithoutText(t *testing.T) {
	token := func() core.Key {
		return core.KeyOf("jwt", func(r adapter.Request) (scope, text string, err error) {
			if len(r.Header("User")) == 0 {
				return "", "", core.ErrNoKey
			}
			return "issuer", r.Header("User")[0], nil
		})
	}
	user := core.ByHeader("User", core.Unverified)
	ofAnn := core.By(func(*http.Request) (string, error) { return "ann", nil })
	all := core.PerHour(100).By(core.Global())
	ann := from("203.0.113.9:1", "User", "ann")
	for name, c := range map[string]struct {
		key  core.Key
		text string
		req  web
	}{
		"join": {core.Join(core.ByIP(), user), "203.0.113.9", ann}, "token": {token(), "ann", ann},
		"token or address":      {core.First(token(), core.ByIP()), "ann", ann},
		"token or everybody":    {core.First(token(), core.Global()), "ann", ann},
		"no address":            {core.ByIP(), "203.0.113.9 ", ann},
		"join of a user's":      {core.Join(ofAnn), "ann", ann},
		"token or join of both": {core.First(token(), core.Join(core.ByIP(), user)), "ann", ann},
	} {
		for desc, policy := range map[string]core.Limits{
			"": {core.PerHour(1)}, ", everybody": {core.PerHour(1), all},
			", numbers": {core.PerHour(1).With(core.FixedWindow)}, ", slots": {core.InFlight(9), core.PerHour(1)},
		} {
			t.Run(name+desc, func(t *testing.T) {
				l := newLimiterBy(t, policy, c.key, core.WithStore(struct{ store.Full }{core.NewMemoryStore()}),
					core.WithBan(2, time.Hour, time.Minute))
				checkOnce(t, l, c.req, true)
				checkOnce(t, l, c.req, false)
				var config *core.ConfigError
				if err := l.Reset(t.Context(), c.text); !errors.As(err, &config) || config.Option != "Reset" ||
					!strings.Contains(err.Error(), "Decision.Reset") {
					t.Errorf("reset of a text: %v", err)
				}
				d := checkOnce(t, l, c.req, false)
				if !d.Banned {
					t.Errorf("%+v", d)
				}
				noError(t, d.Reset(t.Context()))
				checkOnce(t, l, c.req, true)
				d = checkOnce(t, l, c.req, false)
				noError(t, d.Reset(t.Context()))
				checkOnce(t, l, c.req, true)
				if d, err := l.Allow(t.Context(), c.text); !errors.As(err, &config) || config.Option != "key" {
					t.Errorf("%v, %v; want an error for the text", d, err)
				}
			})
		}
	}
}

// Under Global the empty text is everybody.
func TestResetOfEverybody(t *testing.T) {
	l := newLimiterBy(t, core.PerHour(1), core.Global())
	r := from("203.0.113.9:1")
	checkOnce(t, l, r, true)
	if d := askOnce(t, l, ""); d.Allowed {
		t.Errorf("%+v; want a denial", d)
	}
	noError(t, l.Reset(t.Context(), ""))
	d := checkOnce(t, l, r, true)
	noError(t, d.Reset(t.Context()))
	checkOnce(t, l, r, true)
}

// A decision without a key has nothing to reset.
func TestResetWithoutAKey(t *testing.T) {
	l := newLimiter(t, core.PerHour(1), core.WithSkip(func(context.Context) bool { return true }))
	for _, d := range []core.Decision{{}, checkOnce(t, l, from("203.0.113.9:1"), true)} {
		if err := d.Reset(t.Context()); !errors.As(err, new(*core.ConfigError)) {
			t.Errorf("%+v: %v", d, err)
		}
	}
}

// Under Global a text names nothing, so nothing is shared that was meant to be apart.
func TestTextUnderGlobal(t *testing.T) {
	l := newLimiterBy(t, core.PerHour(1), core.Global(), core.WithOverrides())
	ctx := t.Context()
	for name, call := range map[string]func() error{
		"Allow": func() error { _, err := l.Allow(ctx, "customer 7"); return err },
		"Wait":  func() error { _, err := l.Wait(ctx, "customer 7"); return err },
		"Peek":  func() error { _, err := l.Peek(ctx, "customer 7"); return err },
		"Reset": func() error { return l.Reset(ctx, "customer 7") },
		"Override": func() error {
			return l.Override(ctx, "customer 7", core.Override{Denied: true, Until: time.Now().Add(time.Hour)})
		},
	} {
		if err := call(); err == nil || !strings.Contains(err.Error(), "core.ByText()") {
			t.Errorf("%s: %v, want an error with the remedy ByText", name, err)
		}
	}
	if d := askOnce(t, l, ""); !d.Allowed {
		t.Errorf("%v, want the unit of everybody", d)
	}
}
