package main

import (
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
		"one too many in a window": {
			calls{{0, 1, true, 0}, {4, 5, true, 1}, {8, 9, true, 0}}, shared{over: 1, ideal: 2},
		},
		"a window later":              {calls{{0, 1, true, 0}, {4, 5, true, 1}, {10, 11, true, 0}}, shared{ideal: 3}},
		"perhaps not in the window":   {calls{{0, 1, true, 0}, {4, 5, true, 1}, {8, 10, true, 0}}, shared{ideal: 2}},
		"denied without room":         {calls{{0, 1, true, 0}, {4, 5, true, 1}, {9, 9, false, 0}}, shared{ideal: 2}},
		"perhaps it had none":         {calls{{0, 1, true, 0}, {4, 5, true, 1}, {10, 11, false, 0}}, shared{ideal: 3}},
		"perhaps it had none by then": {calls{{0, 1, true, 0}, {7, 9, false, 0}, {8, 9, true, 1}}, shared{ideal: 2}},
		"denied with room": {
			calls{{0, 1, true, 0}, {4, 5, true, 1}, {12, 13, false, 0}}, shared{ideal: 3, denied: 1, longest: 1},
		},
		"for long": {
			calls{
				{0, 1, true, 0}, {2, 3, false, 0}, {4, 5, false, 1}, {6, 8, false, 0}, {9, 9, true, 0}, {20, 21, false, 0},
			},
			shared{ideal: 3, denied: 4, longest: 6},
		},
	} {
		got := lim.judge(c.calls)
		if c.want.admitted = got.admitted; got != c.want {
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
	var processes []*apisixCount
	for range 2 {
		processes = append(processes, &apisixCount{rdb: rdb, limit: limit{quota: quota, window: time.Hour}, key: "k"})
	}
	admitted := 0
	for range 2 * quota {
		for _, p := range processes {
			ok, err := p.check(t.Context())
			if err != nil {
				t.Error(err)
			}
			if ok {
				admitted++
			}
		}
		for _, p := range processes { // as at the end of an interval
			p.mu.Lock()
			if err := p.sync(t.Context()); err != nil {
				t.Error(err)
			}
			p.mu.Unlock()
		}
	}
	if admitted < quota || admitted > quota+2 {
		t.Errorf("two processes admit %d of %d", admitted, quota)
	}
}
