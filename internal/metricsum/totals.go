// Package metricsum has the metrics of limiters for packages that export them: it counts events by policy, adds up what
// limiters hold, and names and describes each metric.
package metricsum

import (
	"reflect"
	"slices"

	"github.com/sashlimit/sash/core"
)

// Of returns the sums of the limiters of each policy, in the order of the first of each. Policies whose limiters are
// all closed are left out. A closed limiter of another policy stays in the sum, so that counters do not decrease. What
// is of a store is in the sum of the first limiter that uses it, and nowhere else.
func Of(limiters []*core.Limiter) (all []*core.Stats) {
	byPolicy := make(map[string]*core.Stats)
	stores := make(map[core.Store]bool)
	for _, s := range ofOpen(limiters) {
		if reflect.TypeOf(s.Store).Comparable() {
			if stores[s.Store] {
				s.Keys, s.MaxKeys, s.Bytes, s.Shared, s.Batches = 0, 0, 0, 0, nil
			}
			stores[s.Store] = true
		}
		if sum := byPolicy[s.Policy]; sum != nil {
			add(sum, s)
			continue
		}
		byPolicy[s.Policy] = s
		all = append(all, s)
	}
	return all
}

// ofOpen returns what each limiter holds whose policy has one that is not closed.
func ofOpen(limiters []*core.Limiter) (all []*core.Stats) {
	seen, open := make(map[*core.Limiter]bool), make(map[string]bool)
	for _, l := range limiters {
		if l == nil || seen[l] {
			continue
		}
		seen[l] = true
		s := l.Stats()
		all, open[s.Policy] = append(all, &s), open[s.Policy] || !s.Closed
	}
	return slices.DeleteFunc(all, func(s *core.Stats) bool { return !open[s.Policy] })
}

func add(sum, s *core.Stats) {
	sum.InFlight, sum.Keys, sum.MaxKeys = sum.InFlight+s.InFlight, sum.Keys+s.Keys, sum.MaxKeys+s.MaxKeys
	sum.Overrides = max(sum.Overrides, s.Overrides) // limiters of one policy have the same
	sum.Bytes, sum.Shared = sum.Bytes+s.Bytes, sum.Shared+s.Shared
	if sum.Breaker == "" || sum.Breaker == "closed" && s.Breaker != "" || s.Breaker == "open" {
		sum.Breaker = s.Breaker
	}
	sum.Outages, sum.Failures, sum.Denials = sum.Outages+s.Outages, sum.Failures+s.Failures, sum.Denials+s.Denials
	sum.Backlog, sum.Replayed, sum.Lost = sum.Backlog+s.Backlog, sum.Replayed+s.Replayed, sum.Lost+s.Lost
	sum.Stalled, sum.Leases, sum.Booked = sum.Stalled+s.Stalled, sum.Leases+s.Leases, sum.Booked+s.Booked
	switch {
	case s.Batches == nil:
	case sum.Batches == nil:
		sum.Batches = s.Batches
	default:
		for i, n := range s.Batches.Sizes {
			sum.Batches.Sizes[i] += n
		}
		sum.Batches.Takes += s.Batches.Takes
	}
}
