package allocs_test

import (
	"runtime/debug"
	"testing"

	"github.com/sashlimit/sash/core/internal/allocs"
)

var sink *[64]byte

func TestPerRun(t *testing.T) {
	const runs = 100
	calls := 0
	for _, c := range []struct {
		desc string
		want float64
		n    func(call int) int // allocations in this call
	}{
		{"none", 0, func(int) int { return 0 }},
		{"one", 1, func(int) int { return 1 }},
		{"three", 3, func(int) int { return 3 }},
		{"four in every second call", 2, func(call int) int { return call % 2 * 4 }},
		{"something else in the first average", 0, func(call int) int { return max(0, runs-call) }},
		{"something else in all but the last", 1, func(call int) int { return max(1, 4*(runs+1)-call) }},
	} {
		calls = 0
		got := allocs.PerRun(runs, func() {
			for range c.n(calls) {
				sink = new([64]byte)
			}
			calls++
		})
		if got != c.want {
			t.Errorf("%s: %v allocations a call, want %v", c.desc, got, c.want)
		}
	}
}

func TestPerRunCollectsNoGarbage(t *testing.T) {
	before := debug.SetGCPercent(80)
	defer debug.SetGCPercent(before)
	during := 0
	allocs.PerRun(10, func() { during = debug.SetGCPercent(-1) })
	if after := debug.SetGCPercent(80); during != -1 || after != 80 {
		t.Errorf("GC percent %d meanwhile, want -1; and %d afterwards, want 80", during, after)
	}
}
