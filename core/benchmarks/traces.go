package main

import (
	"math/rand/v2"
	"slices"
	"time"
)

// trace is a sequence of requests of one key.
type trace struct {
	name string
	at   []time.Duration // when they come, in order; the first fixed window begins at 0
}

// traceWindows is how many windows a trace lasts.
const traceWindows = 6

// traces are the same requests for all, at whole milliseconds. Nothing that matters in them comes exactly one window
// after something else, where it is a convention whether that has left.
func traces(l limit) []trace {
	w, quota := l.window, l.quota
	var edge, two, herd []time.Duration
	edge = append(edge, 0) // windows that begin with the first request begin here, as aligned ones do
	for k := range time.Duration(traceWindows) {
		herd = append(herd, burst(k*(w+w/6000), 3*quota)...)
		if k%2 == 1 {
			edge = append(edge, every(k*w-w/60, k*w+w/60, w/60/time.Duration(3*quota/2))...)
		}
	}
	// A little more than a window apart, when all of the first have left, and half a window apart.
	for _, at := range []time.Duration{w / 2, w/2*3 + w/6000, w / 10 * 39, w / 10 * 44} {
		two = append(two, burst(at, 2*quota)...)
	}
	return []trace{
		{"steady", every(0, traceWindows*w, w*10/9/time.Duration(quota))},
		{"edge", edge},
		{"two bursts", two},
		{"Poisson", poisson(traceWindows*w, w*2/3/time.Duration(quota))},
		{"flood", every(0, traceWindows*w*2/3, w/10/time.Duration(quota))},
		{"herd", herd},
	}
}

// every is one request after the other, to but not at the given end.
func every(from, to, gap time.Duration) (at []time.Duration) {
	for gap = gap.Round(time.Millisecond); from < to; from += gap {
		at = append(at, from)
	}
	return at
}

// burst is n requests at one instant.
func burst(at time.Duration, n int) []time.Duration { return slices.Repeat([]time.Duration{at}, n) }

// poisson is requests that know nothing of each other: the same ones in each run.
func poisson(to, mean time.Duration) (at []time.Duration) {
	random := rand.New(rand.NewPCG(1, 2))
	next := func(t time.Duration) time.Duration {
		return t + time.Duration(random.ExpFloat64()*float64(mean))
	}
	for t := next(0); t < to; t = next(t) {
		at = append(at, t.Round(time.Millisecond))
	}
	return at
}
