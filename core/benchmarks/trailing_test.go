package main

import (
	"slices"
	"testing"
	"time"
)

func TestFullest(t *testing.T) {
	const s = time.Second
	all := []asked{{1 * s, true}, {1 * s, true}, {2 * s, false}, {5 * s, true}, {11*s - 1, true}}
	// Of two seconds each. What comes at 1 s leaves at 11 s.
	want := []int{2, 2, 3, 3, 3, 4, 2, 2, 1, 1}
	if got := fullest(all, 10*s, 20*s, 10); !slices.Equal(got, want) {
		t.Errorf("%v, not %v", got, want)
	}
}
