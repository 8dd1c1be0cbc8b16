package core_test

import (
	"errors"
	"testing"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/coretest"
	"github.com/sashlimit/sash/core/store"
)

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
	for name, s := range map[string]core.Store{
		"memory": core.NewMemoryStore(), "wrapped": struct{ store.Full }{core.NewMemoryStore()},
		"fake": new(coretest.FakeStore),
	} {
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
		if p := denied.Problem(); p.Status != 429 || p.Title != "Quota Exceeded" ||
			p.Detail != "Try again when another request has ended." {
			t.Errorf("%+v", p)
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
