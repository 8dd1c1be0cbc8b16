package coretest

import (
	"testing"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/internal/definition"
	"github.com/sashlimit/sash/core/store"
)

// Verify checks that no window (t-Window, t] of a log, at any t, holds more than its quota. For each limit that is
// exceeded, it reports the fullest window. The entries, in any order, are those of core.Limiter.Log, or the admissions
// that a test of your own has recorded.
//
// Limits of requests in flight (core.InFlight) are left out, because entries do not contain when a request has ended.
//
// What core.Limiter.Record or core.Decision.Settle have recorded beyond a quota is reported as well.
func Verify(tb testing.TB, entries []store.Entry, limits core.Limits) {
	tb.Helper()
	if _, err := core.New(limits, core.ByText()); err != nil {
		tb.Errorf("Verify: %v", err)
		return
	}
	for _, l := range limits {
		if l.Window == 0 { // of requests in flight, which no log of entries tells
			continue
		}
		if err := definition.Verify(entries, l.Quota, l.Window); err != nil {
			tb.Errorf("Verify: %v: %v", l, err)
		}
	}
}
