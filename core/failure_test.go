package core_test

import (
	"context"
	"errors"
	"testing"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/coretest"
)

var errDown = errors.New("connection refused at 10.0.0.1:6379")

func TestFailurePolicies(t *testing.T) {
	for _, c := range []struct {
		failure  core.Failure
		allowed  []bool
		degraded bool
		err      bool
	}{
		{core.FailLocal, []bool{true, true, false, false}, true, false},
		{core.FailOpen, []bool{true, true, true, true}, true, false},
		{core.FailClosed, []bool{false, false, false, false}, false, true},
	} {
		inBubble(t, c.failure.String(), func(t *testing.T) {
			store := new(coretest.FakeStore)
			store.Fail(errDown)
			var heard []core.Event
			l := newLimiter(t, core.PerMinute(2), core.WithStore(store), core.WithFailure(c.failure),
				core.WithObserver(func(_ context.Context, e core.Event) { heard = append(heard, e) }))
			defer l.Close() // or the bubble waits for what brings entries to the store
			for i, want := range c.allowed {
				d, err := l.Allow(t.Context(), "k")
				if d.Allowed != want || d.Degraded != c.degraded || (err != nil) != c.err {
					t.Errorf("request %d: %+v, %v", i+1, d, err)
				}
				var failed *core.StoreError
				e := heard[i]
				if !errors.As(e.Err, &failed) || !errors.Is(e.Err, errDown) || e.Decision.Degraded != c.degraded {
					t.Errorf("request %d: the observer heard %+v", i+1, e)
				}
			}
		})
	}
}
