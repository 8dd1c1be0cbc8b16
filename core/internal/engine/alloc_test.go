package engine_test

import (
	"context"
	"testing"

	"github.com/sashlimit/sash/core/internal/engine"
	"github.com/sashlimit/sash/core/store"
)

// TestAllocations has a decision about one limit, in memory, allocate nothing, and one about two limits once.
func TestAllocations(t *testing.T) {
	for text, want := range map[string]float64{
		"1000000/hour": 0, "1/hour": 0, "1000000/month": 0, "1000000/hour burst 9": 0,
	} {
		e := newEngine(t)
		s := compile(t, e, text)
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
