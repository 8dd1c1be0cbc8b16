package metricsum

import "github.com/sashlimit/sash/core"

// stat is a number of [core.Stats].
type stat struct {
	*Metric

	has func(*core.Stats) bool // whether limiters of this store have it
	of  func(*core.Stats) float64
}

func ofAll(*core.Stats) bool       { return true }
func overrides(s *core.Stats) bool { return s.Overrides > 0 }
func leases(s *core.Stats) bool    { return s.Leases > 0 }
func ofMemory(s *core.Stats) bool  { return s.MaxKeys > 0 }
func ofGuard(s *core.Stats) bool   { return s.Breaker != "" }
func batched(s *core.Stats) bool   { return s.Batches != nil }

var stats = []stat{
	{gauge("sash_slots_in_flight", "active_request_leases", "{slot}",
		"Permits of InFlight that requests of this process hold."),
		ofAll, func(s *core.Stats) float64 { return float64(s.InFlight) }},
	{gauge("sash_overrides", "overrides", "{override}",
		"Overrides in force, if there are any. All processes have the same."),
		overrides, func(s *core.Stats) float64 { return float64(s.Overrides) }},
	{gauge("sash_leases", "leases", "{lease}", "Leases that this process holds, if there are any."),
		leases, func(s *core.Stats) float64 { return float64(s.Leases) }},
	{gauge("sash_leased_units", "leased_units", "{unit}", "Units that were booked ahead and are not used yet."),
		leases, func(s *core.Stats) float64 { return float64(s.Booked) }},
	{gauge("sash_memory_keys", "memory.keys", "{key}", "Keys with a log of their own."),
		ofMemory, func(s *core.Stats) float64 { return float64(s.Keys) }},
	{gauge("sash_memory_max_keys", "memory.max_keys", "{key}", "Most keys that can have a log of their own."),
		ofMemory, func(s *core.Stats) float64 { return float64(s.MaxKeys) }},
	{gauge("sash_memory_bytes", "memory.usage", "By", "Memory that the logs use."),
		ofMemory, func(s *core.Stats) float64 { return float64(s.Bytes) }},
	{counter("sash_memory_shared_total", "memory.shared", "{request}",
		"Requests whose key shared a log with other keys."),
		ofMemory, func(s *core.Stats) float64 { return float64(s.Shared) }},
	{counter("sash_outages_total", "store.outages", "{outage}",
		"Times the breaker opened because the store did not answer."),
		ofGuard, func(s *core.Stats) float64 { return float64(s.Outages) }},
	{counter("sash_store_failures_total", "store.failures", "{call}", "Calls that the store did not answer."),
		ofGuard, func(s *core.Stats) float64 { return float64(s.Failures) }},
	{counter("sash_process_stalled_seconds_total", "process.stalled", "ms",
		"Time in which requests waited for the store and this process could not run."),
		ofGuard, func(s *core.Stats) float64 { return s.Stalled.Seconds() }},
	{gauge("sash_deny_cache_entries", "deny_cache.entries", "{denial}", "Denials in the deny cache."),
		ofGuard, func(s *core.Stats) float64 { return float64(s.Denials) }},
	{gauge("sash_replay_backlog", "replay.backlog", "{take}",
		"Takes decided without the store and not yet replayed to it."),
		ofGuard, func(s *core.Stats) float64 { return float64(s.Backlog) }},
	{counter("sash_replayed_total", "replay.replayed", "{take}", "Takes replayed to the store after an outage."),
		ofGuard, func(s *core.Stats) float64 { return float64(s.Replayed) }},
	{counter("sash_lost_units_total", "replay.lost", "{unit}",
		"Units admitted without the store that cannot be replayed to it."),
		ofGuard, func(s *core.Stats) float64 { return float64(s.Lost) }},
	{counter("", "store.batched_takes", "{take}", "Takes sent to the store, in batches or alone."),
		batched, func(s *core.Stats) float64 { return float64(s.Batches.Takes) }},
	{counter("", "store.batches", "{batch}", "Batches sent to the store."), batched, countBatches},
}

func countBatches(s *core.Stats) (n float64) {
	for _, size := range s.Batches.Sizes {
		n += float64(size)
	}
	return n
}

var breaker = gauge("sash_breaker_state", "breaker", "1",
	"1 for the breaker's state: closed while the store is asked.", "state")

// StatsMetrics are those of [Report].
var StatsMetrics = func() []*Metric {
	all := append(make([]*Metric, 0, 1+len(stats)), breaker)
	for _, one := range stats {
		all = append(all, one.Metric)
	}
	return all
}()

// Report calls yield with the value of each metric that limiters hold.
func Report(s *core.Stats, yield func(Sample)) {
	for _, one := range stats {
		if one.has(s) {
			yield(Sample{Metric: one.Metric, Policy: s.Policy, Value: one.of(s)})
		}
	}
	if !ofGuard(s) {
		return
	}
	for _, state := range []string{"closed", "open", "half open"} {
		value := 0.0
		if s.Breaker == state {
			value = 1
		}
		yield(Sample{Metric: breaker, Policy: s.Policy, Labels: []string{state}, Value: value})
	}
}
