package metricsum

import "github.com/sashlimit/sash/core"

// The metrics of [core.Stats].
var (
	inFlight = gauge("sash_permits_in_flight", "permits_in_flight", "{permit}",
		"Permits of InFlight that requests of this process hold.")
	overrides = gauge("sash_overrides", "overrides", "{override}",
		"Overrides in force, if there are any. All processes have the same.")
	leases      = gauge("sash_leases", "leases", "{lease}", "Leases that this process holds, if there are any.")
	leasedUnits = gauge("sash_leased_units", "leased_units", "{unit}",
		"Units that were booked ahead and are not used yet.")
	keys    = gauge("sash_memory_keys", "memory.keys", "{key}", "Keys with a log of their own.")
	maxKeys = gauge("sash_memory_max_keys", "memory.max_keys", "{key}", "Most keys that can have a log of their own.")
	usage   = gauge("sash_memory_bytes", "memory.usage", "By", "Memory that the logs use.")
	shared  = counter("sash_memory_shared_total", "memory.shared", "{request}",
		"Requests whose key shared a log with other keys.")
	outages = counter("sash_outages_total", "store.outages", "{outage}",
		"Times the breaker opened because the store did not answer.")
	misses  = counter("sash_store_failures_total", "store.failures", "{call}", "Calls that the store did not answer.")
	denials = gauge("sash_deny_cache_entries", "deny_cache.entries", "{denial}", "Denials in the deny cache.")
	backlog = gauge("sash_replay_backlog", "replay.backlog", "{take}",
		"Takes decided without the store, or to be settled, of which it does not know yet.")
	replayed = counter("sash_replayed_total", "replay.replayed", "{entry}",
		"Entries replayed to the store after an outage.")
	lost = counter("sash_lost_units_total", "replay.lost", "{unit}",
		"Units admitted without the store that cannot be replayed to it.")
	breaker = gauge("sash_breaker_state", "breaker", "1",
		"1 for the breaker's state: closed while the store is asked.", "state")

	// StatsMetrics are those of [Report].
	StatsMetrics = []*Metric{
		inFlight, overrides, leases, leasedUnits, keys, maxKeys, usage, shared, outages, misses, denials,
		backlog, replayed, lost, breaker,
	}
)

// Report calls yield with the value of each metric that limiters hold.
func Report(s *core.Stats, yield func(Sample)) {
	sample := func(m *Metric, value float64, labels ...string) {
		yield(Sample{Metric: m, Policy: s.Policy, Labels: labels, Value: value})
	}
	sample(inFlight, float64(s.InFlight))
	if s.Overrides > 0 {
		sample(overrides, float64(s.Overrides))
	}
	if s.Leases > 0 {
		sample(leases, float64(s.Leases))
		sample(leasedUnits, float64(s.Booked))
	}
	if s.MaxKeys > 0 { // of a MemoryStore
		sample(keys, float64(s.Keys))
		sample(maxKeys, float64(s.MaxKeys))
		sample(usage, float64(s.Bytes))
		sample(shared, float64(s.Shared))
	}
	if s.Breaker != "" { // of any other store
		sample(outages, float64(s.Outages))
		sample(misses, float64(s.Failures))
		sample(denials, float64(s.Denials))
		sample(backlog, float64(s.Backlog))
		sample(replayed, float64(s.Replayed))
		sample(lost, float64(s.Lost))
		for _, state := range []string{"closed", "open"} {
			value := 0.0
			if s.Breaker == state {
				value = 1
			}
			sample(breaker, value, state)
		}
	}
}
