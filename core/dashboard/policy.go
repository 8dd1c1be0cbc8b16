package dashboard

import (
	"cmp"
	"slices"
	"sync/atomic"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/event"
)

const (
	seconds     = 300 // of history
	maxPolicies = 100 // that pages show, the busiest ones
)

// What is counted of each policy.
const (
	admitted = iota
	denied
	near
	degraded
	failed
	noKey
	refundFailed
	shadowDenied
	shadowFailed
	reloadFailed
	counters
)

const series = failed + 1 // the counters that have a history

// policy has the counters of a policy.
type policy struct {
	name  string
	count [counters]atomic.Uint64

	// The mutex of the board guards these.

	sampled [series]uint64
	history [seconds][series]uint32
	at      int // in history, where the next sample goes
}

// counted returns what an event counts as.
func counted(e *core.Event) [counters]bool {
	o := e.Outcome
	return [counters]bool{
		admitted:     o == event.Allowed || o == event.Listed || o == event.Skipped,
		denied:       o == event.Denied || o == event.Banned || o == event.Forbidden,
		near:         e.NearLimit(),
		degraded:     o.IsDecision() && e.Decision.Degraded,
		failed:       o == event.Failed,
		noKey:        o == event.NoKey,
		refundFailed: o == event.RefundFailed,
		shadowDenied: o.IsDecision() && e.Shadow != nil && !e.Shadow.Allowed,
		shadowFailed: o == event.ShadowFailed,
		reloadFailed: o == event.ReloadFailed,
	}
}

// sample reports whether a counter has changed.
func (p *policy) sample() (changed bool) {
	s := &p.history[p.at]
	for i := range s {
		n := p.count[i].Load()
		s[i] = uint32(min(n-p.sampled[i], 1<<32-1))
		changed = changed || s[i] > 0
		p.sampled[i] = n
	}
	p.at = (p.at + 1) % seconds
	return changed
}

// busiest returns the policies that pages show, by name, and how many they do not show.
func busiest(all []*policy) (shown []*policy, others int) {
	if len(all) <= maxPolicies {
		return all, 0
	}
	recent := make(map[*policy]uint64, len(all))
	for _, p := range all {
		for _, s := range p.history {
			recent[p] += uint64(s[admitted]) + uint64(s[denied]) + uint64(s[failed])
		}
	}
	shown = slices.Clone(all)
	slices.SortStableFunc(shown, func(x, y *policy) int { return cmp.Compare(recent[y], recent[x]) })
	shown = shown[:maxPolicies]
	slices.SortFunc(shown, func(x, y *policy) int { return cmp.Compare(x.name, y.name) })
	return shown, len(all) - maxPolicies
}
