package guard

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/sashlimit/sash/core/internal/lease"
	"github.com/sashlimit/sash/core/store"
)

// A lease ends when the monotonic or the wall clock has reached its end, however the other one is set or stands still.
// Moving the instant from which the monotonic clock counts moves that clock against the wall clock.
func TestEitherClockEndsALease(t *testing.T) {
	defer func(start time.Time) { processStart = start }(processStart)
	const d = 100 * time.Millisecond
	for _, c := range []struct {
		name    string
		passed  time.Duration // by the wall clock
		ahead   time.Duration // by which the monotonic clock has gone on for longer
		isSpent bool
	}{
		{"both before the end", d / 2, 0, true},
		{"wall clock set back", 0, d, false},
		{"wall clock set back, before the end", 0, d / 2, true},
		{"wall clock set forward", d, -d, false},
		{"both at the end", d, 0, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			h := &holder{lease: &Lease{Lease: lease.New(5, instant().End(d))}}
			time.Sleep(c.passed)
			processStart = processStart.Add(-c.ahead)
			if u := h.spend(&store.Take{Cost: 1}, new(store.Answer)); u.IsLeased() != c.isSpent {
				t.Errorf("%s: spent %v, want %v", c.name, u.IsLeased(), c.isSpent)
			}
		})
	}
}
