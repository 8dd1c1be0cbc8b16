package engine_test

import (
	"context"
	"strings"
	"testing"

	"github.com/sashlimit/sash/core/internal/engine"
	"github.com/sashlimit/sash/core/store"
)

// TestAllocations has a decision about one or two limits, in memory, allocate nothing.
func TestAllocations(t *testing.T) {
	for text, want := range map[string]float64{
		"1000000/hour": 0, "1/hour": 0, "1000000/month": 0, "1000000/hour burst 9": 0,
		"1000000/hour, 5000000/day": 0, "1/hour, 5/day": 0, "1000000/hour, 1000000/day, 1000000/minute": 3,
	} {
		e := newEngine(t)
		s := compile(t, e, strings.Split(text, ", ")...)
		if n := testing.AllocsPerRun(1000, func() { decide(e, s) }); n != want {
			t.Errorf("%s: a decision has %v allocations", text, n)
		}
	}
}

func decide(e *engine.Engine, s *engine.Set) {
	var r engine.Result
	ids := [1]store.Identity{text("a")}
	must(e.Decide(context.Background(), s, &engine.Ask{Identities: ids[:], Cost: 1}, &r))
}

func BenchmarkDecide(b *testing.B) {
	for _, text := range []string{"1000000000/hour", "1/hour", "1000000000/month"} {
		b.Run(text, func(b *testing.B) {
			e := newEngine(b)
			s := compile(b, e, text)
			for b.Loop() {
				decide(e, s)
			}
		})
	}
}
