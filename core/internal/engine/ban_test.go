package engine_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sashlimit/sash/core/internal/engine"
	"github.com/sashlimit/sash/core/store"
)

// banning is a ban of a second after some denials within a minute.
func banning(denials int) func(*engine.Config) {
	return func(c *engine.Config) { c.Ban = &engine.Ban{Denials: denials, Within: time.Minute, First: time.Second} }
}

// TestBans has each ban last twice as long as the one before, up to 64 times the first, and forgets them.
func TestBans(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEngine(t, banning(3))
		s := compile(t, e, "1/hour")
		ask := func() *engine.Result {
			return allow(t, e, s, &engine.Ask{Identities: []store.Identity{text("a")}, Cost: 1})
		}
		if r := ask(); !r.Allowed {
			t.Fatal("the first request was denied")
		}
		for _, seconds := range []int{1, 2, 4, 8, 16, 32, 64, 64} {
			want := time.Duration(seconds) * time.Second
			for range 2 {
				if r := ask(); r.Allowed || r.Cause != engine.ByLimits {
					t.Fatalf("before a ban of %v: cause %v", want, r.Cause)
				}
			}
			r := ask()
			if r.Allowed || r.Cause != engine.ByBan || r.Retry != want || r.Never || r.Tightest() >= 0 {
				t.Fatalf("a ban of %v begins: cause %v, retry %v", want, r.Cause, r.Retry)
			}
			if id := r.Identity(); id == nil || *id != text("a") {
				t.Errorf("the identity is %v", id)
			}
			time.Sleep(want / 4)
			if r = ask(); r.Cause != engine.ByBan || r.Retry != want-want/4 {
				t.Fatalf("during a ban of %v: cause %v, retry %v", want, r.Cause, r.Retry)
			}
			time.Sleep(r.Retry)
		}
		time.Sleep(128 * time.Second)
		ask()
		ask()
		if r := ask(); r.Cause != engine.ByBan || r.Retry != time.Second {
			t.Errorf("bans are not forgotten: cause %v, retry %v", r.Cause, r.Retry)
		}
		if err := e.Reset(t.Context(), text("a")); err != nil {
			t.Fatal(err)
		}
		if r := ask(); !r.Allowed {
			t.Errorf("a reset does not lift a ban: cause %v", r.Cause)
		}
		ask()
		ask()
		if r := ask(); r.Retry != time.Second {
			t.Errorf("a reset does not forget bans: %v", r.Retry)
		}
	})
}

// TestNoBan has what does not count towards a ban.
func TestNoBan(t *testing.T) {
	for name, c := range map[string]struct {
		limit string
		ask   engine.Ask
	}{
		"another key": {"1/hour by org", engine.Ask{}},
		"no permit":   {"1 in flight", engine.Ask{}},
		"peeks":       {"1/hour", engine.Ask{Mode: store.ModePeek}},
		"Wait":        {"1/hour", engine.Ask{}},
		"recorded":    {"1/hour", engine.Ask{Mode: store.ModeRecord}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e := newEngine(t, banning(1))
				s := compile(t, e, "100/day", c.limit)
				a := c.ask
				a.Identities, a.Cost = identities(s, "a", "o"), 1
				first := a
				first.Mode = store.ModeCharge
				allow(t, e, s, &first)
				for range 5 {
					var r engine.Result
					if name == "Wait" {
						ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
						if err := wait(ctx, e, s, &a, &r); !errors.Is(err, context.DeadlineExceeded) || r.Allowed {
							t.Errorf("it has waited: %v", err)
						}
						cancel()
					} else {
						r = *allow(t, e, s, &a)
					}
					if r.Cause == engine.ByBan {
						t.Error("banned")
					}
				}
			})
		})
	}
}
