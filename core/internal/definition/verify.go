package definition

import (
	"fmt"
	"slices"
	"time"

	"github.com/sashlimit/sash/core/store"
)

// Verify returns an error unless every window (t-Window, t] of entries, at any t, holds at most the limit's quota. The
// error tells the fullest window. The entries are in any order.
func Verify(entries []store.Entry, quota int, window time.Duration) error {
	entries = slices.Clone(entries)
	slices.SortFunc(entries, func(a, b store.Entry) int { return a.At.Compare(b.At) })
	// A window is at its fullest when it ends at an entry's instant.
	first, units, most := 0, 0, 0
	var end time.Time
	for _, e := range entries {
		if e.Cost < 1 {
			return fmt.Errorf("an entry of %d units at %s", e.Cost, instantText(e.At))
		}
		units += e.Cost
		for ; e.At.Sub(entries[first].At) >= window; first++ {
			units -= entries[first].Cost
		}
		if units > most {
			most, end = units, e.At
		}
	}
	if most > quota {
		return fmt.Errorf("%d units in the window (%s, %s], the quota is %d", most, instantText(end.Add(-window)),
			instantText(end), quota)
	}
	return nil
}

func instantText(t time.Time) string { return t.Format(time.RFC3339Nano) }
