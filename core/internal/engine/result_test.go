package engine_test

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sashlimit/sash/core/internal/engine"
	"github.com/sashlimit/sash/core/internal/memory"
	"github.com/sashlimit/sash/core/internal/testlen"
	"github.com/sashlimit/sash/core/store"
)

// TestNumbers has what a decision tells of its limits.
func TestNumbers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEngine(t)
		s := compile(t, e, "4/10s", "5/minute", "1000 tokens/minute", "3 in flight")
		if names := strings.Join(s.UnitNames(), " "); names != "requests tokens" || !s.Counts("tokens") ||
			s.Counts("bytes") {
			t.Errorf("units %s", names)
		}
		ask := func(tokens int) *engine.Result {
			a := &engine.Ask{Identities: identities(s, "a", ""), Cost: 1, Costs: costs(s, 1, tokens)}
			return allow(t, e, s, a)
		}
		used := func(r *engine.Result) int {
			_, _, used := r.Numbers()
			return used
		}
		r := ask(900)
		const first = `"4-per-10s";r=3;t=10, "5-per-minute";r=4;t=60, "1000-tokens-per-minute";r=100;t=60, ` +
			`"3-in-flight";r=2`
		if got := string(r.AppendRateLimit(nil)); got != first || r.Tightest() != 2 || used(r) != 0 {
			t.Errorf("%s, tightest %d", got, r.Tightest())
		}
		time.Sleep(500 * time.Millisecond)
		if r = ask(0); r.State(2).Asked || r.Tightest() != 0 && r.Tightest() != 3 || used(r) != 1 {
			t.Errorf("without tokens: tightest %d", r.Tightest())
		}
		ask(0)
		must(r.Release(t.Context()))
		r = ask(200)
		if got := string(r.AppendRateLimit(nil)); r.Allowed || got != `"1000-tokens-per-minute";r=100;t=60` ||
			r.Tightest() != 2 || used(r) != 900 {
			t.Errorf("a denial: %s, used %d", got, used(r))
		}
		if r = ask(2000); string(r.AppendRateLimit(nil)) != `"1000-tokens-per-minute";r=100` {
			t.Errorf("it never fits: %s", r.AppendRateLimit(nil))
		}
		two := compile(t, e, "5 tokens/minute", "5 bytes/minute")
		if two.NoUnnamed("cost") == nil || s.NoUnnamed("cost") != nil {
			t.Error("costs without a name")
		}
		if only := compile(t, e, "5 tokens/minute", "7 tokens/hour"); only.Unit != "tokens" || only.Longest != 1 {
			t.Errorf("the only unit %q, longest %d", only.Unit, only.Longest)
		}
	})
}

// TestResets deletes what a key has used, of all limits that were chosen, and leaves other keys alone.
func TestResets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEngine(t)
		choose := func(texts ...string) *engine.Set {
			s, err := e.Choose(limits(t, texts...), false)
			must(err)
			return s
		}
		use := func(s *engine.Set) *engine.Result {
			return allow(t, e, s, &engine.Ask{Identities: identities(s, "a", "o"), Cost: 1, Costs: []int{1, 1}})
		}
		small, large := choose("1/hour", "9/hour by org"), choose("1/day", "9 tokens/month")
		use(small)
		use(large)
		must(e.Reset(t.Context(), text("a")))
		if r := use(small); !r.Allowed || r.State(1).Used != 1 {
			t.Errorf("after a reset: %v, used %d", r.Denying(), r.State(1).Used)
		}
		r := use(large)
		if !r.Allowed || r.State(1).Used != 0 {
			t.Errorf("after a reset: %v, used %d", r.Denying(), r.State(1).Used)
		}
		must(r.ResetKeys(t.Context()))
		if r = use(large); !r.Allowed {
			t.Errorf("after the key of a decision was reset: %v", r.Denying())
		}
		s := choose("5/hour by org")
		if r = allow(t, e, s, &engine.Ask{Identities: identities(s, "a", "o"),
			Cost: 1}); !errors.As(r.ResetKeys(t.Context()), new(*store.ConfigError)) {
			t.Error("a decision without an own key was reset")
		}
	})
}

// TestUndoAfterAReset undoes what was taken while a reset was on its way, which gives back nothing of what was taken
// since then.
func TestUndoAfterAReset(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := new(far)
		e := newEngine(t, f.on())
		s, a := compile(t, e, "5/hour with fixed window"), &engine.Ask{Identities: []store.Identity{text("a")}, Cost: 1}
		var lost *engine.Result
		f.resets = func() { lost = allow(t, e, s, a) }
		must(e.Reset(t.Context(), text("a")))
		must(lost.Undo(t.Context()))
		if len(f.settled) > 0 { // a counter does not know whose unit it takes off
			t.Errorf("%+v", f.settled)
		}
	})
}

// TestResetElsewhere deletes what another process has counted by an override.
func TestResetElsewhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		logs, overrides := memory.New(10), new(keeper)
		use := func(c *engine.Config) { c.Memory, c.Overrider = logs, overrides }
		here, there := newEngine(t, overriding, use), newEngine(t, overriding, use)
		s := compile(t, here, "1/hour")
		compile(t, there, "1/hour")
		o := &engine.Override{Limits: limits(t, "7/minute"), Until: inAnHour()}
		must(here.SetOverride(t.Context(), here.OverrideKeys(s)[0], text("a"), "a", o))
		a := &engine.Ask{Identities: []store.Identity{text("a")}, Cost: 1}
		allow(t, here, s, a)
		must(there.Reset(t.Context(), text("a")))
		if r := allow(t, here, s, a); r.State(0).Used != 0 {
			t.Errorf("used %d", r.State(0).Used)
		}
	})
}

// TestMonths counts anew in each month.
func TestMonths(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEngine(t)
		s := compile(t, e, "2/month")
		for range testlen.Of(3, 8) {
			for used := range 3 {
				r := allow(t, e, s, &engine.Ask{Identities: identities(s, "a", ""), Cost: 1})
				y, m, _ := time.Now().UTC().Date()
				next := time.Until(time.Date(y, m+1, 1, 0, 0, 0, 0, time.UTC))
				state, late := r.State(0), !r.Allowed && r.Retry != next
				if r.Allowed != (used < 2) || state.Used != used || state.Reset != next || late {
					t.Errorf("%v: used %d, retry %v, reset %v", time.Now(), r.State(0).Used, r.Retry, r.State(0).Reset)
				}
			}
			time.Sleep(31 * 24 * time.Hour)
		}
	})
}
