package core_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/coretest"
)

// Clients that were denied, and clients that have used up their quota, stay denied when the store fails, however many
// they are.
func TestDenialsHoldWhileTheStoreIsAway(t *testing.T) {
	for _, c := range []struct {
		desc    string
		clients int
		tries   int // 0: one AllowAtMost
		options []core.Option
	}{
		{"denied", 1000, 3, nil},
		{"used up", 10, 2, nil},
		{"used up by AllowAtMost", 10, 0, nil},
		{"denied, each try counts", 10, 3, []core.Option{core.WithCountDenied()}},
		{"denied, beside a shadow", 10, 3, []core.Option{core.WithShadow(core.PerMinute(1))}},
	} {
		inBubble(t, c.desc, func(t *testing.T) {
			fake := new(coretest.FakeStore)
			l := newLimiter(t, core.PerHour(2), append(c.options, core.WithStore(fake))...)
			defer l.Close()
			for i := range c.clients {
				if c.tries == 0 {
					if _, err := l.AllowAtMost(t.Context(), fmt.Sprint(i), 5); err != nil {
						t.Fatal(err)
					}
				}
				for range c.tries {
					if _, err := l.Allow(t.Context(), fmt.Sprint(i)); err != nil {
						t.Fatal(err)
					}
				}
			}
			pass(fake, time.Minute)
			fake.Fail(errDown)
			admitted, wrong := 0, 0
			for i := range c.clients {
				d, err := l.Allow(t.Context(), fmt.Sprint(i))
				if err != nil || !d.Degraded {
					t.Fatal(d, err)
				}
				late := d.RetryAfter > 59*time.Minute && len(c.options) == 0
				if d.Allowed {
					admitted++
				} else if late || d.RetryAfter <= 58*time.Minute || len(d.Violated) != 1 {
					wrong++
				}
			}
			if admitted > 0 || wrong > 0 {
				t.Errorf("%d of %d were admitted, %d were told a wrong wait", admitted, c.clients, wrong)
			}
			time.Sleep(59*time.Minute + time.Second)
			allowed(t, l, "7", true)
			fake.Fail(nil)
		})
	}
}
