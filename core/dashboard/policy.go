package dashboard

import (
	"cmp"
	"slices"

	"github.com/sashlimit/sash/core/event"
	"github.com/sashlimit/sash/core/internal/metricsum"
)

const (
	seconds     = 300 // of history
	maxPolicies = 100 // that pages show, the busiest ones
)

// What has a history.
const (
	admitted = iota
	denied
	near
	degraded
	failed
	series
)

// policyCounts has the counters of a policy.
type policyCounts struct {
	metricsum.Counts

	name string

	// The mutex of the board guards these.

	sampled [series]uint64
	history [seconds][series]uint32
	at      int // in history, where the next sample goes
}

// counted returns what has been counted until now.
func (p *policyCounts) counted() [series]uint64 {
	return [series]uint64{
		admitted: p.Of(event.Allowed, event.Listed, event.Skipped),
		denied:   p.Of(event.Denied, event.Banned, event.Forbidden),
		near:     p.Marked(metricsum.Near),
		degraded: p.Marked(metricsum.Degraded),
		failed:   p.Of(event.Failed),
	}
}

// sample reports whether a counter has changed.
func (p *policyCounts) sample() (changed bool) {
	s := &p.history[p.at]
	for i, n := range p.counted() {
		s[i] = uint32(min(n-p.sampled[i], 1<<32-1))
		changed = changed || s[i] > 0
		p.sampled[i] = n
	}
	p.at = (p.at + 1) % seconds
	return changed
}

// busiest returns the policies that pages show, by name, and how many they do not show.
func busiest(all []*policyCounts) (shown []*policyCounts, others int) {
	if len(all) <= maxPolicies {
		return all, 0
	}
	recent := make(map[*policyCounts]uint64, len(all))
	for _, p := range all {
		for _, s := range p.history {
			recent[p] += uint64(s[admitted]) + uint64(s[denied]) + uint64(s[failed])
		}
	}
	shown = slices.Clone(all)
	slices.SortStableFunc(shown, func(x, y *policyCounts) int { return cmp.Compare(recent[y], recent[x]) })
	shown = shown[:maxPolicies]
	slices.SortFunc(shown, func(x, y *policyCounts) int { return cmp.Compare(x.name, y.name) })
	return shown, len(all) - maxPolicies
}
