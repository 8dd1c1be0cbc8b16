package metricsum

import (
	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/event"
)

// What is counted of decisions, each up to these.
const (
	Outcomes = int(event.Failed) + 1
	Sources  = int(event.Local) + 1
)

// Value is a number of [core.Stats], and how metrics name it.
type Value struct {
	Prometheus  string // its name, or empty if Prometheus has it in a histogram
	OTel        string // its name
	Unit        string // of OTel; in "ms" are 1,000 times Of
	Description string
	Counts      bool                        // it never decreases
	Has         func(*core.Stats) bool      // whether limiters of this store have it
	Of          func(s *core.Stats) float64 // in Prometheus' unit
}

// States are those of a breaker.
var States = [...]string{"closed", "open", "half open"}

func ofAll(*core.Stats) bool      { return true }
func ofMemory(s *core.Stats) bool { return s.MaxKeys > 0 }
func batched(s *core.Stats) bool  { return s.Batches != nil }

// OfGuard reports whether the store has a breaker.
func OfGuard(s *core.Stats) bool { return s.Breaker != "" }

// Values are the numbers of limiters.
var Values = []Value{
	{"sash_slots_in_flight", "active_request_leases", "{slot}", "Slots of InFlight that requests of this process hold.",
		false, ofAll, func(s *core.Stats) float64 { return float64(s.InFlight) }},
	{"sash_memory_keys", "memory.keys", "{key}", "Keys that have a log of their own.",
		false, ofMemory, func(s *core.Stats) float64 { return float64(s.Keys) }},
	{"sash_memory_max_keys", "memory.max_keys", "{key}", "Keys that can have a log of their own.",
		false, ofMemory, func(s *core.Stats) float64 { return float64(s.MaxKeys) }},
	{"sash_memory_bytes", "memory.usage", "By", "Memory that the logs use.",
		false, ofMemory, func(s *core.Stats) float64 { return float64(s.Bytes) }},
	{"sash_memory_shared_total", "memory.shared", "{request}", "Requests whose key has shared a log with others.",
		true, ofMemory, func(s *core.Stats) float64 { return float64(s.Shared) }},
	{"sash_outages_total", "store.outages", "{outage}", "How often the store has stopped to answer.",
		true, OfGuard, func(s *core.Stats) float64 { return float64(s.Outages) }},
	{"sash_store_failures_total", "store.failures", "{call}", "Calls that the store has not answered.",
		true, OfGuard, func(s *core.Stats) float64 { return float64(s.Failures) }},
	{"sash_process_stalled_seconds_total", "process.stalled", "ms",
		"Time in which requests waited and this process could not run.",
		true, OfGuard, func(s *core.Stats) float64 { return s.Stalled.Seconds() }},
	{"sash_deny_cache_entries", "deny_cache.entries", "{denial}", "Denials that are remembered.",
		false, OfGuard, func(s *core.Stats) float64 { return float64(s.Denials) }},
	{"sash_replay_backlog", "replay.backlog", "{take}",
		"Takes that were decided without the store and that it still has to be told.",
		false, OfGuard, func(s *core.Stats) float64 { return float64(s.Backlog) }},
	{"sash_replayed_total", "replay.replayed", "{take}",
		"Takes that the store was told after they were decided without it.",
		true, OfGuard, func(s *core.Stats) float64 { return float64(s.Replayed) }},
	{"sash_lost_units_total", "replay.lost", "{unit}",
		"Units that were admitted without the store and that it cannot be told.",
		true, OfGuard, func(s *core.Stats) float64 { return float64(s.Lost) }},
	{"", "store.batched_takes", "{take}", "Takes that were sent to the store, in batches or alone.",
		true, batched, func(s *core.Stats) float64 { return float64(s.Batches.Takes) }},
	{"", "store.batches", "{batch}", "Batches that were sent to the store.",
		true, batched, func(s *core.Stats) (n float64) {
			for _, size := range s.Batches.Sizes {
				n += float64(size)
			}
			return n
		}},
}
