package main

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// TestJudge compares the verdict about random requests with all windows that there are, in steps of a millisecond.
func TestJudge(t *testing.T) {
	const quota, window, span = 3, 20, 100
	random := rand.New(rand.NewPCG(3, 4))
	inexact := 0
	for range 500 {
		var all []asked
		for at := range span {
			for range random.IntN(3) {
				all = append(all, asked{time.Duration(at) * time.Millisecond, random.IntN(4) == 0})
			}
		}
		over, denied := 0, []time.Duration(nil)
		for end := range span {
			units := 0
			for _, r := range all {
				if ms := int(r.at.Milliseconds()); r.allowed && ms > end-window && ms <= end {
					units++
				}
			}
			over = max(over, units-quota)
		}
		for i, r := range all {
			units := 0
			for _, before := range all[:i] {
				if before.allowed && r.at-before.at < window*time.Millisecond {
					units++
				}
			}
			if !r.allowed && units < quota {
				denied = append(denied, r.at)
			}
		}
		got := judge(quota, window*time.Millisecond, all)
		if got.over != over || !slices.Equal(got.denied, denied) || got.exact() != (over == 0 && denied == nil) {
			t.Fatalf("%+v, exact is %v, not %d and %v: %v", got, got.exact(), over, denied, all)
		}
		if over > 0 && denied != nil {
			inexact++
		}
	}
	if inexact < 100 {
		t.Errorf("only %d sequences were above the quota and falsely denied", inexact)
	}
}
