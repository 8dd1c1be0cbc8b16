//go:build next

package core_test

import (
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sashlimit/sash/core/internal/next/core"
)

// Once LimitBy has chosen a longer window for anybody, what other limits record is kept for it as well.
func TestLongestWindowChosenSoFar(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiterBy(t, core.LimitBy(func(r *http.Request) core.Limits {
			if r.Header.Get("Plan") == "pro" {
				return core.Limits{core.PerHour(10)}
			}
			return core.Limits{core.PerMinute(10)}
		}), core.ByIP())
		used := func(addr, plan string) int {
			d, err := l.Check(from(addr+":1", "Plan", plan))
			if err != nil || !d.Allowed {
				t.Fatal(d, err)
			}
			d.Serve(func() int { return http.StatusOK })
			return d.Used
		}
		used("192.0.2.2", "")
		used("192.0.2.2", "pro")
		for range 5 {
			used("192.0.2.1", "")
		}
		time.Sleep(2 * time.Minute)
		if got := used("192.0.2.1", ""); got != 0 {
			t.Errorf("%d units within a minute, want none", got)
		}
		if got := used("192.0.2.1", "pro"); got != 6 {
			t.Errorf("%d units within an hour, want 6", got)
		}
	})
}
