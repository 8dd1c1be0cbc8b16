package core_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"reflect"
	"testing"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/coretest"
	"github.com/sashlimit/sash/core/store"
)

// slotStores are stores on which limits of requests in flight are tested, by name.
func slotStores() map[string]core.Store {
	return map[string]core.Store{
		"memory": core.NewMemoryStore(), "wrapped": struct{ store.Full }{core.NewMemoryStore()},
		"fake": new(coretest.FakeStore),
	}
}

// allowed asks for one unit and compares.
func allowed(t *testing.T, l *core.Limiter, key string, want bool) core.Decision {
	t.Helper()
	d, err := l.Allow(t.Context(), key)
	if err != nil || d.Allowed != want {
		t.Errorf("%v, %v; want allowed %v", d, err, want)
	}
	return d
}

// A decision tells of permits what it tells of units, but for when they are free. Any cost takes one of them.
func TestInFlight(t *testing.T) {
	for name, s := range slotStores() {
		l := newLimiter(t, core.InFlight(2), core.WithStore(s))
		first, second := allowed(t, l, "k", true), allowed(t, l, "k", true)
		if first.Remaining != 1 || second.Remaining != 0 || second.Used != 1 || second.ResetAfter != 0 {
			t.Errorf("%s: %+v, then %+v", name, first, second)
		}
		denied := allowed(t, l, "k", false)
		if denied.RetryAfter != 0 || denied.ResetAfter != 0 || denied.Remaining != 0 || denied.Never() ||
			errors.Is(denied.Err(), core.ErrCostExceedsQuota) ||
			denied.Err().Error() != "sash: limited by 2-in-flight: too many requests at the same time" {
			t.Errorf("%s: %+v, %v", name, denied, denied.Err())
		}
		allowed(t, l, "other", true)
		for range 3 { // only the first time it does something
			noError(t, errors.Join(first.Release(t.Context()), denied.Release(t.Context())))
		}
		if d, err := l.AllowN(t.Context(), "k", 50); err != nil || !d.Allowed || d.Settle(t.Context(), 7) != nil {
			t.Errorf("%s: %+v, %v", name, d, err)
		}
		if d, err := l.Record(t.Context(), "k", 3); err != nil || !d.Allowed || d.Release(t.Context()) != nil {
			t.Errorf("%s: %+v, %v", name, d, err)
		}
		noError(t, l.Reset(t.Context(), "k"))
		if d, err := l.Peek(t.Context(), "k"); err != nil || d.Allowed || d.Used != 2 {
			t.Errorf("%s: %+v, %v: want both permits held", name, d, err)
		}
	}
	none, ctx := core.Decision{}, t.Context()
	noError(t, errors.Join(none.Release(ctx), none.Undo(ctx), none.Settle(ctx, 1)))
}

func TestHeadersOfInFlight(t *testing.T) {
	l := newLimiter(t, core.Limits{core.InFlight(2), core.PerHour(9)}, core.WithHeaders(core.HeadersBoth))
	fields := func(allow bool) http.Header {
		h := make(http.Header)
		d := allowed(t, l, "k", allow)
		d.SetHeaders(h)
		return h
	}
	policy := `"2-in-flight";q=2;qu="concurrent-requests", "9-per-hour";q=9;w=3600`
	want := http.Header{
		"Ratelimit-Policy": {policy}, "Ratelimit": {`"2-in-flight";r=1, "9-per-hour";r=8;t=3600`},
		"X-Ratelimit-Limit": {"2"}, "X-Ratelimit-Remaining": {"1"},
	}
	if got := fields(true); !reflect.DeepEqual(got, want) {
		t.Errorf("allowed: %v, want %v", got, want)
	}
	fields(true)
	want = http.Header{
		"Ratelimit-Policy": {policy}, "Ratelimit": {`"2-in-flight";r=0`}, "Cache-Control": {"no-store"},
		"X-Ratelimit-Limit": {"2"}, "X-Ratelimit-Remaining": {"0"},
	}
	if got := fields(false); !reflect.DeepEqual(got, want) {
		t.Errorf("denied: %v, want %v", got, want)
	}
	d := allowed(t, l, "k", false)
	p := d.Problem()
	if p.Status != 429 || p.Title != "Quota Exceeded" || p.Detail != "Try again when another request has ended." {
		t.Errorf("%+v", p)
	}
}

// Handlers that end in any way give their slot back, also if the request's context is canceled.
func TestServeReleases(t *testing.T) {
	for name, s := range slotStores() {
		t.Run(name, func(t *testing.T) {
			l := newLimiterBy(t, core.InFlight(1), core.Global(), core.WithStore(s))
			for i, end := range []func(){
				func() {}, func() { panic("boom") }, func() { panic(http.ErrAbortHandler) },
			} {
				ctx, cancel := context.WithCancel(t.Context())
				r := web{httptest.NewRequestWithContext(ctx, http.MethodGet, "/", nil)}
				d := checkOnce(t, l, r, true)
				func() {
					defer func() { recover() }()
					d.Serve(func() int {
						if other, err := l.Check(r); err != nil || other.Allowed {
							t.Errorf("%d: %v, %v: two at a time", i, other, err)
						}
						cancel()
						end()
						return 200
					})
				}()
				cancel()
			}
		})
	}
}

func release(t *testing.T, d core.Decision) {
	t.Helper()
	noError(t, d.Release(t.Context()))
}
