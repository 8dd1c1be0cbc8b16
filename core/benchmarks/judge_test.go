package main

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

func TestJudge(t *testing.T) {
	const s = time.Second
	yes := func(at ...time.Duration) (all []asked) {
		for _, at := range at {
			all = append(all, asked{at, true})
		}
		return all
	}
	seconds := func(at ...time.Duration) (all []time.Duration) {
		for _, at := range at {
			all = append(all, at*s)
		}
		return all
	}
	no := func(at time.Duration) []asked { return []asked{{at, false}} }
	for name, c := range map[string]struct {
		asked  [][]asked
		over   int
		denied []time.Duration
	}{
		"nothing":                        {},
		"a full window":                  {[][]asked{yes(0, 1*s), no(9 * s)}, 0, nil},
		"one too many":                   {[][]asked{yes(0, 1*s, 9*s)}, 1, nil},
		"one too many at one instant":    {[][]asked{yes(5*s, 5*s, 5*s)}, 1, nil},
		"one window old has left":        {[][]asked{yes(0, 1*s, 10*s, 11*s)}, 0, nil},
		"almost a window old has not":    {[][]asked{yes(0, 1*s, 10*s-1)}, 1, nil},
		"denied when the first has left": {[][]asked{yes(0, 1*s), no(10 * s)}, 0, seconds(10)},
		"denied just before that":        {[][]asked{yes(0, 1*s), no(10*s - 1)}, 0, nil},
		"denied first":                   {[][]asked{no(0), yes(0, 0)}, 0, seconds(0)},
		"denied last":                    {[][]asked{yes(0, 0), no(0)}, 0, nil},
		"two windows, the worse counts":  {[][]asked{yes(0, 0, 0, 0, 60*s, 60*s, 60*s)}, 2, nil},
		"falsely denied twice":           {[][]asked{yes(0), no(s), no(2 * s), yes(3 * s)}, 0, seconds(1, 2)},
		"above the quota, then denied":   {[][]asked{yes(0, s, 2*s, 3*s), no(11 * s), no(12 * s)}, 2, seconds(12)},
	} {
		got := judge(2, 10*s, slices.Concat(c.asked...))
		if got.over != c.over || !slices.Equal(got.denied, c.denied) {
			t.Errorf("%s: %+v, not %d and %v", name, got, c.over, c.denied)
		}
		if got.exact() != (c.over == 0 && c.denied == nil) {
			t.Errorf("%s: exact is %v", name, got.exact())
		}
	}
}

// TestJudgeEveryWindow compares it with all windows that there are, in steps of a millisecond.
func TestJudgeEveryWindow(t *testing.T) {
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
		over, denied := 0, 0
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
				denied++
			}
		}
		got := judge(quota, window*time.Millisecond, all)
		if got.over != over || len(got.denied) != denied {
			t.Fatalf("%d and %d, not %d and %d: %v", got.over, len(got.denied), over, denied, all)
		}
		if over > 0 && denied > 0 {
			inexact++
		}
	}
	if inexact < 100 {
		t.Errorf("only %d sequences were above the quota and falsely denied", inexact)
	}
}
