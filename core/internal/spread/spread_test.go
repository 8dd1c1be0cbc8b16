package spread_test

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/sashlimit/sash/core/internal/spread"
)

// A schedule hands out what a list of all instants at which a unit is free has, in order, none of them twice.
func TestSchedule(t *testing.T) {
	seed := rand.Uint64()
	for world := range 20_000 {
		r := rand.New(rand.NewPCG(seed, uint64(world)))
		period := time.Duration(5 + r.IntN(10))
		quota := 1 + r.IntN(8)
		var holds []spread.Units
		var free []time.Duration // the instants
		for at := range period {
			if n := r.IntN(4) - 1; n > 0 {
				holds = append(holds, spread.Units{At: 100 + at, N: n})
				free = append(free, slices.Repeat([]time.Duration{100 + at}, n)...)
			}
		}
		if holds == nil {
			continue
		}
		given := slices.Clone(holds)
		if above := len(free) - quota; above > 0 {
			free = free[above:]
		} else {
			free = slices.Concat(slices.Repeat(free[:1], -above), free)
		}
		s := spread.New(holds, quota, period)
		if !slices.Equal(holds, given) {
			t.Fatalf("seed %#x, world %d: the list was changed", seed, world)
		}
		for range 20 {
			if r.IntN(10) == 0 { // another clock
				unit, at := r.IntN(3*quota), 100+time.Duration(r.IntN(50))
				by := at - free[unit%quota] - time.Duration(unit/quota)*period
				s.Set(int64(unit), at)
				for i := range free {
					free[i] += by
				}
			}
			n := r.IntN(5 * quota)
			want := free[n%quota] + time.Duration(n/quota)*period
			if got := s.At(int64(n)); got != want {
				t.Fatalf("seed %#x, world %d: %v, quota %d, period %d: unit %d is free at %d, want %d",
					seed, world, holds, quota, period, n, got, want)
			}
			at := free[0] - 10 + time.Duration(r.IntN(60))
			before := 0
			for free[before%quota]+time.Duration(before/quota)*period < at {
				before++
			}
			if got := s.Before(at); got != int64(before) {
				t.Fatalf("seed %#x, world %d: %v, quota %d, period %d: %d units are free before %d, want %d",
					seed, world, holds, quota, period, got, at, before)
			}
		}
	}
}

func TestEvery(t *testing.T) {
	s := spread.New([]spread.Units{{At: 7, N: 3}}, 3, 10)
	for n, want := range map[int64]time.Duration{0: 7, 2: 7, 3: 17, 3e9 + 1: 1e10 + 7} {
		if got := s.At(n); got != want {
			t.Errorf("unit %d is free at %d, want %d", n, got, want)
		}
	}
	for at, want := range map[time.Duration]int64{0: 0, 7: 0, 8: 3, 17: 3, 18: 6, 1e10 + 8: 3e9 + 3} {
		if got := s.Before(at); got != want {
			t.Errorf("%d units are free before %d, want %d", got, at, want)
		}
	}
}
