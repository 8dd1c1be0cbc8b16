package memory_test

import (
	"testing"
	"time"

	"github.com/sashlimit/sash/core/internal/memory"
	"github.com/sashlimit/sash/core/store"
)

// A take of one key: while its log grows, while entries leave as others come, denied, and of two limits.
func BenchmarkTake(b *testing.B) {
	limit := func(quota int, window time.Duration) *store.Limit {
		return &store.Limit{Log: window.String(), Quota: quota, Window: window}
	}
	growing, rolling := limit(1_000_000_000, time.Hour), limit(1_000_000_000, time.Millisecond)
	for _, c := range []struct {
		name   string
		limits []*store.Limit
	}{
		{"growing", []*store.Limit{growing}},
		{"rolling", []*store.Limit{rolling}},
		{"denied", []*store.Limit{limit(1, time.Hour)}},
		{"two", []*store.Limit{rolling, limit(1_000_000_000, 2*time.Millisecond)}},
		{"two denied", []*store.Limit{limit(1, time.Hour), limit(1, time.Minute)}},
	} {
		b.Run(c.name, func(b *testing.B) {
			s, key := memory.New(1000), store.NewKey("p", "k")
			takes, answers := make([]store.Take, len(c.limits)), make([]store.Answer, len(c.limits))
			for i, l := range c.limits {
				takes[i] = store.Take{Key: key, Limit: l, Cost: 1}
			}
			for b.Loop() {
				for i := range takes {
					takes[i].ID = 0
				}
				s.Take(takes, answers)
			}
		})
	}
}
