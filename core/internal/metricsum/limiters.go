package metricsum

import (
	"reflect"
	"slices"
	"sync"

	"github.com/sashlimit/sash/core"
)

// report calls yield with what limiters of a policy hold.
func report(s *core.Stats, yield func(Sample)) {
	gauge := func(prometheus, otel, unit, help string, value int) {
		yield(Sample{Metric: Metric{false, prometheus, otel, unit, help, ""}, Policy: s.Policy, Value: float64(value)})
	}
	counter := func(prometheus, otel, unit, help string, value uint64) {
		yield(Sample{Metric: Metric{true, prometheus, otel, unit, help, ""}, Policy: s.Policy, Value: float64(value)})
	}
	gauge("sash_permits_in_flight", "permits_in_flight", "{permit}",
		"Permits of InFlight that requests of this process hold.", s.InFlight)
	if s.Overrides > 0 {
		gauge("sash_overrides", "overrides", "{override}",
			"Overrides in force, if there are any. All processes have the same.", s.Overrides)
	}
	if s.Leases > 0 {
		gauge("sash_leases", "leases", "{lease}", "Leases that this process holds, if there are any.", s.Leases)
		gauge("sash_leased_units", "leased_units", "{unit}",
			"Units that were booked ahead and are not used yet.", s.Booked)
	}
	if s.MaxKeys > 0 { // of a MemoryStore
		gauge("sash_memory_keys", "memory.keys", "{key}", "Keys with a log of their own.", s.Keys)
		gauge("sash_memory_max_keys", "memory.max_keys", "{key}",
			"Most keys that can have a log of their own.", s.MaxKeys)
		gauge("sash_memory_bytes", "memory.usage", "By", "Memory that the logs use.", s.Bytes)
		counter("sash_memory_shared_total", "memory.shared", "{request}",
			"Requests whose key shared a log with other keys.", s.Shared)
	}
	if s.Breaker == "" {
		return // it has no other store
	}
	counter("sash_outages_total", "store.outages", "{outage}",
		"Times the breaker opened because the store did not answer.", s.Outages)
	counter("sash_store_failures_total", "store.failures", "{call}", "Calls that the store did not answer.", s.Failures)
	gauge("sash_deny_cache_entries", "deny_cache.entries", "{denial}", "Denials in the deny cache.", s.Denials)
	gauge("sash_replay_backlog", "replay.backlog", "{take}",
		"Takes decided without the store, or to be settled, of which it does not know yet.", int(s.Backlog))
	counter("sash_replayed_total", "replay.replayed", "{entry}",
		"Entries replayed to the store after an outage.", s.Replayed)
	counter("sash_lost_units_total", "replay.lost", "{unit}",
		"Units admitted without the store that cannot be replayed to it.", s.Lost)
	for _, state := range []string{"closed", "open"} {
		m, value := Metric{false, "sash_breaker_state", "breaker", "1",
			"1 for the breaker's state: closed while the store is asked.", "state"}, 0.0
		if s.Breaker == state {
			value = 1
		}
		yield(Sample{Metric: m, Policy: s.Policy, Values: []string{state}, Value: value})
	}
}

// Limiters are those whose sums are reported, until all of a policy are closed.
type Limiters struct {
	mu  sync.Mutex
	all []*core.Limiter
}

// NewLimiters returns limiters, each once.
func NewLimiters(limiters []*core.Limiter) *Limiters {
	l := new(Limiters)
	for _, one := range limiters {
		if one != nil && !slices.Contains(l.all, one) {
			l.all = append(l.all, one)
		}
	}
	return l
}

// Metrics implements [Source].
func (l *Limiters) Metrics() (all []Metric) {
	report(&core.Stats{Overrides: 1, Leases: 1, MaxKeys: 1, Breaker: "open"}, func(s Sample) { // all that there may be
		if !slices.Contains(all, s.Metric) {
			all = append(all, s.Metric)
		}
	})
	return all
}

// Report implements [Source].
func (l *Limiters) Report(yield func(Sample)) {
	for _, s := range l.Sums() {
		report(s, yield)
	}
}

// Sums returns the sums of the limiters of each policy, in the order of the first of each. Policies whose limiters are
// all closed are left out, and their limiters are dropped. Until then a closed limiter stays in the sum, so that
// counters do not decrease. What is of a store is in the sum of the first limiter that uses it, and nowhere else.
func (l *Limiters) Sums() (all []*core.Stats) {
	l.mu.Lock()
	defer l.mu.Unlock()
	open := make(map[string]bool)
	for _, one := range l.all {
		policy := one.Inside().Policy()
		open[policy] = open[policy] || !one.Inside().IsClosed()
	}
	l.all = slices.DeleteFunc(l.all, func(one *core.Limiter) bool { return !open[one.Inside().Policy()] })
	sums, stores := make(map[string]*core.Stats), make(map[core.Store]bool)
	for _, one := range l.all {
		s := one.Stats()
		if reflect.TypeOf(s.Store).Comparable() {
			if stores[s.Store] {
				s.Keys, s.MaxKeys, s.Bytes, s.Shared = 0, 0, 0, 0
			}
			stores[s.Store] = true
		}
		if sum := sums[s.Policy]; sum != nil {
			add(sum, &s)
		} else {
			sums[s.Policy], all = &s, append(all, &s)
		}
	}
	return all
}

func add(sum, s *core.Stats) {
	sum.InFlight, sum.Keys, sum.MaxKeys = sum.InFlight+s.InFlight, sum.Keys+s.Keys, sum.MaxKeys+s.MaxKeys
	sum.Overrides = max(sum.Overrides, s.Overrides) // limiters of one policy have the same
	sum.Bytes, sum.Shared = sum.Bytes+s.Bytes, sum.Shared+s.Shared
	sum.Breaker = max(sum.Breaker, s.Breaker) // "open" is behind "closed"
	sum.Outages, sum.Failures, sum.Denials = sum.Outages+s.Outages, sum.Failures+s.Failures, sum.Denials+s.Denials
	sum.Backlog, sum.Replayed, sum.Lost = sum.Backlog+s.Backlog, sum.Replayed+s.Replayed, sum.Lost+s.Lost
	sum.Leases, sum.Booked = sum.Leases+s.Leases, sum.Booked+s.Booked
}
