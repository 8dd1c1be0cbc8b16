package coretest

import (
	"slices"
	"testing"
	"time"

	"github.com/sashlimit/sash/core"
)

// Verify checks that no window (t-Window, t] of a log, at any t, holds more than its quota. For each limit that is
// exceeded, it reports the fullest window. The entries, in any order, are those of [core.Limiter.Log], or the
// admissions that a test of your own has recorded.
//
// Limits of requests in flight ([core.InFlight]) are left out, because entries do not contain when a request has ended.
//
// What [core.Limiter.Record] or [core.Decision.Settle] have recorded beyond a quota is reported as well.
func Verify(tb testing.TB, entries []core.Entry, limits core.Limits) {
	tb.Helper()
	if _, err := core.New(limits, core.Global()); err != nil {
		tb.Errorf("Verify: %v", err)
		return
	}
	entries = slices.Clone(entries)
	slices.SortFunc(entries, func(a, b core.Entry) int { return a.At.Compare(b.At) })
	for _, e := range entries {
		if e.Cost < 1 {
			tb.Errorf("Verify: an entry of %d units at %s", e.Cost, instant(e.At))
		}
	}
	for _, l := range limits {
		if l.Window == 0 { // of requests in flight, which no log of entries tells
			continue
		}
		// A window is at its fullest when its end is an entry's instant.
		first, units, most := 0, 0, 0
		var end time.Time
		for _, e := range entries {
			units += e.Cost
			for ; e.At.Sub(entries[first].At) >= l.Window; first++ {
				units -= entries[first].Cost
			}
			if units > most {
				most, end = units, e.At
			}
		}
		if most > l.Quota {
			tb.Errorf("Verify: %v: %d units in the window (%s, %s]", l, most, instant(end.Add(-l.Window)), instant(end))
		}
	}
}

func instant(t time.Time) string { return t.Format(time.RFC3339Nano) }
