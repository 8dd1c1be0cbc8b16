package coretest_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/coretest"
	"github.com/sashlimit/sash/core/store"
)

// heard records the errors of a test.
type heard struct {
	testing.TB

	errors []string
}

func (*heard) Helper() {}

func (h *heard) Errorf(format string, args ...any) {
	h.errors = append(h.errors, fmt.Sprintf(format, args...))
}

func TestVerify(t *testing.T) {
	noon := time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)
	at := func(offsets ...time.Duration) (entries []store.Entry) {
		for _, o := range offsets {
			entries = append(entries, store.Entry{At: noon.Add(o), Cost: 1})
		}
		return entries
	}
	for _, c := range []struct {
		desc    string
		entries []store.Entry
		limits  core.Limits
		want    []string
	}{
		{"exactly a window apart", at(0, time.Minute, 2*time.Minute), core.Limits{core.PerMinute(1)}, nil},
		{"several limits", at(2*time.Second, 0, time.Minute, time.Second),
			core.Limits{core.PerSecond(1), core.PerMinute(2), core.InFlight(1), core.PerHour(3)}, []string{
				"Verify: 2/minute: 3 units in the window (2026-01-02T11:59:02Z, 2026-01-02T12:00:02Z], the quota is 2",
				"Verify: 3/hour: 4 units in the window (2026-01-02T11:01:00Z, 2026-01-02T12:01:00Z], the quota is 3"}},
		{"no limits", at(0), core.Limits{}, []string{
			"Verify: sash: limits(none): there are no limits; pass at least one, such as core.PerMinute(100)"}},
	} {
		h, given := new(heard), slices.Clone(c.entries)
		coretest.Verify(h, c.entries, c.limits)
		if !slices.Equal(h.errors, c.want) {
			t.Errorf("%s:\ngot  %q\nwant %q", c.desc, h.errors, c.want)
		}
		if !slices.Equal(c.entries, given) {
			t.Errorf("%s: the entries have changed", c.desc)
		}
	}
}
