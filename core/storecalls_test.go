package core_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/coretest"
	"github.com/sashlimit/sash/core/event"
	"github.com/sashlimit/sash/core/store"
)

// All calls to the store are told, with their errors. A panic of the observer changes no decision.
func TestStoreObserver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := new(coretest.FakeStore)
		var calls []string
		tell := func(_ context.Context, c event.StoreCall) {
			text := c.Policy + " " + c.Operation.String()
			var failed *store.StoreError
			if errors.As(c.Err, &failed) {
				text += " " + failed.Class
			} else if c.Err != nil {
				text += " error"
			}
			calls = append(calls, text)
		}
		l := newLimiter(t, core.Limits{core.PerHour(100)}, core.WithStore(s), core.WithName("p"),
			core.WithStoreObserver(tell), core.WithStoreObserver(func(context.Context, event.StoreCall) { panic("x") }))
		defer l.Close()
		check := func(desc string, want ...string) {
			t.Helper()
			for i := range want {
				want[i] = "p " + want[i]
			}
			if !slices.Equal(calls, want) {
				t.Errorf("%s: calls %q, want %q", desc, calls, want)
			}
			calls = nil
		}
		d := allowed(t, l, "a", true)
		check("Allow", "take")
		must(t, d.Undo(t.Context()))
		check("Undo", "settle")
		must(t, l.Reset(t.Context(), "a"))
		check("Reset", "reset")
		s.Fail(&store.StoreError{Err: errors.New("away"), Class: "refused"})
		if d, err := l.Allow(t.Context(), "a"); err != nil || !d.Degraded {
			t.Fatal(d, err)
		}
		check("an outage", "take refused")
		s.Fail(nil)
		time.Sleep(5 * time.Second)
		synctest.Wait()
		check("after an outage", "merge")
	})
}
