package core_test

import (
	"net/http"
	"testing"

	"github.com/sashlimit/sash/core"
)

// Of two limiters, the fields of X-RateLimit are those of the one with less left, and of the outer one if both have as
// many left.
func TestLegacyFieldsOfTwoLimiters(t *testing.T) {
	for _, c := range []struct {
		outer, inner       core.Limit
		limit, left, reset string
	}{
		{core.PerMinute(4), core.PerHour(3), "3", "2", "3600"},
		{core.PerMinute(3), core.PerHour(3), "3", "2", "60"},
		{core.PerMinute(3), core.PerHour(4), "3", "2", "60"},
	} {
		h := make(http.Header)
		for _, limit := range []core.Limit{c.outer, c.inner} {
			l := newLimiterBy(t, limit, core.Global(), core.WithHeaders(core.HeadersLegacy))
			d, err := l.Check(from("192.0.2.1:1"))
			if err != nil || !d.Allowed {
				t.Fatal(d, err)
			}
			d.SetHeaders(h)
			d.Serve(func() int { return http.StatusOK })
		}
		got := [...]string{
			h.Get("X-RateLimit-Limit"), h.Get("X-RateLimit-Remaining"), h.Get("X-RateLimit-Reset"),
		}
		if want := [...]string{c.limit, c.left, c.reset}; got != want {
			t.Errorf("%v and %v: %v, want %v", c.outer, c.inner, got, want)
		}
	}
}
