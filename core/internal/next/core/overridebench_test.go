//go:build next

package core_test

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/sashlimit/sash/core/internal/next/core"
	"github.com/sashlimit/sash/core/internal/next/store"
)

// BenchmarkOverrides is a decision without the option, and with it while the policy has none and 10,000 overrides,
// of this key or of others. It reports the memory of an override in a process beside what the store keeps.
func BenchmarkOverrides(b *testing.B) {
	for _, c := range []struct {
		name string
		opts []core.Option
		n    int
		key  string
	}{
		{"without", nil, 0, "k"},
		{"none", []core.Option{core.WithOverrides()}, 0, "k"},
		{"10000 others", []core.Option{core.WithOverrides()}, 10_000, "k"},
		{"10000 and its own", []core.Option{core.WithOverrides()}, 10_000, "customer 7"},
	} {
		b.Run(c.name, func(b *testing.B) {
			s := core.NewMemoryStore()
			limiters := make([]*core.Limiter, 2)
			for i := range limiters {
				var err error
				if limiters[i], err = core.New(core.PerMinute(1_000_000), core.Global(), append(c.opts,
					core.WithStore(struct{ store.Full }{s}), core.WithName("p"))...); err != nil {
					b.Fatal(err)
				}
			}
			until := time.Now().Add(time.Hour).Truncate(time.Millisecond)
			if c.n > 0 {
				fill(b, limiters[0], s, c.n, until)
			}
			l := limiters[1]
			var before, after runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&before)
			if _, err := l.Allow(b.Context(), c.key); err != nil { // which reads them
				b.Fatal(err)
			}
			runtime.GC()
			runtime.ReadMemStats(&after)
			for b.Loop() {
				if _, err := l.Peek(b.Context(), c.key); err != nil {
					b.Fatal(err)
				}
			}
			if c.n > 0 {
				b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/float64(c.n), "B/override")
			}
			runtime.KeepAlive(limiters)
		})
	}
}

// fill sets n overrides. Only the first one goes through the limiter, which reads all of them after each.
func fill(b *testing.B, l *core.Limiter, s *core.MemoryStore, n int, until time.Time) {
	b.Helper()
	o := core.Override{Limits: core.Limits{core.PerMinute(2_000_000)}, Until: until, Note: "ticket 4711"}
	if err := l.Override(b.Context(), "customer 7", o); err != nil {
		b.Fatal(err)
	}
	_, all, err := s.Overrides(b.Context(), "p", "")
	if err != nil {
		b.Fatal(err)
	}
	for i := range n - 1 {
		one := all[0]
		one.Name = fmt.Sprintf("1:p:o:by:%032x", i)
		one.Value = strings.Replace(one.Value, "customer 7", fmt.Sprint("customer ", i), 1)
		if err := s.SetOverride(b.Context(), "p", one); err != nil {
			b.Fatal(err)
		}
	}
}
