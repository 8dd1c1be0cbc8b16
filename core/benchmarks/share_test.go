package main

import (
	"bytes"
	"os"
	"strings"
	"testing"
	"time"
)

// TestJudgeCalls has calls of which it is known how many units a window holds at least, and at most.
func TestJudgeCalls(t *testing.T) {
	lim := limit{quota: 2, window: 10}
	for name, c := range map[string]struct {
		calls []call
		want  shared
	}{
		"one too many in a window":    {calls{{0, 1, true, 0}, {4, 5, true, 1}, {8, 9, true, 0}}, shared{over: 1, ideal: 2}},
		"a window later":              {calls{{0, 1, true, 0}, {4, 5, true, 1}, {10, 11, true, 0}}, shared{ideal: 3}},
		"perhaps not in the window":   {calls{{0, 1, true, 0}, {4, 5, true, 1}, {8, 10, true, 0}}, shared{ideal: 2}},
		"denied without room":         {calls{{0, 1, true, 0}, {4, 5, true, 1}, {9, 9, false, 0}}, shared{ideal: 2}},
		"perhaps it had none":         {calls{{0, 1, true, 0}, {4, 5, true, 1}, {10, 11, false, 0}}, shared{ideal: 3}},
		"perhaps it had none by then": {calls{{0, 1, true, 0}, {7, 9, false, 0}, {8, 9, true, 1}}, shared{ideal: 2}},
		"denied with room":            {calls{{0, 1, true, 0}, {4, 5, true, 1}, {12, 13, false, 0}}, shared{0, 3, 1, 1}},
		"for long": {
			calls{
				{0, 1, true, 0}, {2, 3, false, 0}, {4, 5, false, 1}, {6, 8, false, 0}, {9, 9, true, 0}, {20, 21, false, 0},
			},
			shared{0, 3, 4, 6},
		},
	} {
		if got := lim.judge(c.calls); got != c.want {
			t.Errorf("%s: %+v, not %+v", name, got, c.want)
		}
	}
}

type calls = []call

// TestSynced checks that processes that count by themselves see each other's counts. Each may have admitted one unit
// more by then.
func TestSynced(t *testing.T) {
	const quota = 4
	rdb := connect(t)
	for _, c := range []contestant{wso2(rdb), apisix(rdb)} {
		var processes []limiter
		for range 2 {
			l, err := c.make(limit{quota: quota, window: time.Hour})
			if err != nil {
				t.Fatal(err)
			}
			defer l.end()
			processes = append(processes, l)
		}
		admitted := 0
		for range 2 * quota {
			for _, l := range processes {
				ok, err := l.check(t.Context(), "k")
				if err != nil {
					t.Errorf("%s: %v", c.name, err)
				}
				if ok {
					admitted++
				}
			}
			time.Sleep(150 * time.Millisecond) // real time, in which the processes tell Redis their counts
		}
		if admitted < quota || admitted > quota+2 {
			t.Errorf("%s: two processes admit %d of %d", c.name, admitted, quota)
		}
	}
}
func TestLeaseResults(t *testing.T) {
	r, err := lastResults(".", "leases.json")
	if err != nil {
		t.Fatal(err)
	}
	readme, err := os.ReadFile("README.md")
	if err != nil || !strings.Contains(string(readme), r.machine()+r.text()) {
		t.Errorf("README.md has other tables: do \"go run . -draw leases\": %v", err)
	}
	drawn, err := r.leaseChart().svg()
	if err != nil {
		t.Fatal(err)
	}
	wellFormed(t, "leases.svg", drawn)
	if chart, err := os.ReadFile("charts/leases.svg"); err != nil || !bytes.Equal(chart, drawn) {
		t.Errorf("charts/leases.svg is of other results: do \"go run . -draw leases\": %v", err)
	}
}
