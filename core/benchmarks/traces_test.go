package main

import (
	"slices"
	"testing"
	"time"
)

func TestTraces(t *testing.T) {
	l := limit{quota: 100, window: time.Minute}
	again := traces(l)
	seen := make(map[string]bool)
	for i, trace := range traces(l) {
		if seen[trace.name] || len(trace.at) == 0 || !slices.IsSorted(trace.at) {
			t.Errorf("%s: twice, empty or out of order", trace.name)
		}
		if !slices.Equal(trace.at, again[i].at) {
			t.Errorf("%s: not the same again", trace.name)
		}
		seen[trace.name] = true
		for _, at := range trace.at {
			if at < 0 || at >= traceWindows*l.window || at%time.Millisecond != 0 {
				t.Fatalf("%s: a request at %v", trace.name, at)
			}
		}
	}
}

// TestTracesLoad checks of each trace what its name says: how many of its requests are in a window at most.
func TestTracesLoad(t *testing.T) {
	l := limit{quota: 100, window: time.Minute}
	at := make(map[string][]time.Duration)
	for _, trace := range traces(l) {
		at[trace.name] = trace.at
	}
	in := func(name string, from, to time.Duration) (n int) {
		for _, at := range at[name] {
			if from <= at && at < to {
				n++
			}
		}
		return n
	}
	const s, minute = time.Second, time.Minute
	for _, c := range []struct {
		name        string
		from, to    time.Duration
		least, most int
	}{
		{"steady", 0, minute, 90, 90},
		{"steady", 5 * minute, 6 * minute, 89, 90},
		{"edge", 0, 59 * s, 1, 1},
		{"edge", 59 * s, 60 * s, 100, 200},
		{"edge", 60 * s, 61 * s, 100, 200},
		{"edge", 61 * s, 179 * s, 0, 0},
		{"two bursts", 30 * s, 30*s + 1, 200, 200},
		{"two bursts", 90*s + 1, 91 * s, 200, 200},
		{"two bursts", 234 * s, 234*s + 1, 200, 200},
		{"two bursts", 264 * s, 264*s + 1, 200, 200},
		{"Poisson", 0, 6 * minute, 850, 950},
		{"flood", 0, minute, 1000, 1000},
		{"flood", 3 * minute, 4 * minute, 1000, 1000},
		{"herd", 0, 1, 300, 300},
		{"herd", 5 * minute, 5*minute + s, 300, 300},
	} {
		if n := in(c.name, c.from, c.to); n < c.least || n > c.most {
			t.Errorf("%s: %d requests from %v to %v, not %d to %d", c.name, n, c.from, c.to, c.least, c.most)
		}
	}
}
