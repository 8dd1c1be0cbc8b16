package prommetrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/store"
	"github.com/sashlimit/sash/internal/metricsum"
)

// Collector reports [core.Stats] of limiters when Prometheus asks. Register one collector with all limiters of the
// program, since two have metrics of the same names. For a file of rules, give it a limiter that the Limiter method of
// the rules returns.
//
// Limiters of one policy are added up. What is of a store is reported once, for the first of the limiters that use it.
func Collector(limiters ...*core.Limiter) prometheus.Collector { return collector(limiters) }

type collector []*core.Limiter

type metric struct {
	*prometheus.Desc

	kind  prometheus.ValueType
	value func(*core.Stats) float64
}

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(name, help, append([]string{"policy"}, labels...), nil)
}

func gauge(name, help string, value func(*core.Stats) float64) metric {
	return metric{desc(name, help), prometheus.GaugeValue, value}
}

func counted(name, help string, value func(*core.Stats) float64) metric {
	return metric{desc(name, help), prometheus.CounterValue, value}
}

var (
	// ofAll are of every limiter.
	ofAll = []metric{
		gauge("sash_slots_in_flight", "Slots of InFlight that requests of this process hold.",
			func(s *core.Stats) float64 { return float64(s.InFlight) }),
	}
	// ofMemory are of a MemoryStore.
	ofMemory = []metric{
		gauge("sash_memory_keys", "Keys that have a log of their own.",
			func(s *core.Stats) float64 { return float64(s.Keys) }),
		gauge("sash_memory_max_keys", "Keys that can have a log of their own.",
			func(s *core.Stats) float64 { return float64(s.MaxKeys) }),
		gauge("sash_memory_bytes", "Memory that the logs use.",
			func(s *core.Stats) float64 { return float64(s.Bytes) }),
		counted("sash_memory_shared_total", "Requests whose key has shared a log with others.",
			func(s *core.Stats) float64 { return float64(s.Shared) }),
	}
	// ofGuard are of what stands before any other store.
	ofGuard = []metric{
		counted("sash_outages_total", "How often the store has stopped to answer.",
			func(s *core.Stats) float64 { return float64(s.Outages) }),
		counted("sash_store_failures_total", "Calls that the store has not answered.",
			func(s *core.Stats) float64 { return float64(s.Failures) }),
		counted("sash_process_stalled_seconds_total", "Time in which requests waited and this process could not run.",
			func(s *core.Stats) float64 { return s.Stalled.Seconds() }),
		gauge("sash_deny_cache_entries", "Denials that are remembered.",
			func(s *core.Stats) float64 { return float64(s.Denials) }),
		gauge("sash_replay_backlog", "Takes that were decided without the store and that it still has to be told.",
			func(s *core.Stats) float64 { return float64(s.Backlog) }),
		counted("sash_replayed_total", "Takes that the store was told after they were decided without it.",
			func(s *core.Stats) float64 { return float64(s.Replayed) }),
		counted("sash_lost_units_total", "Units that were admitted without the store and that it cannot be told.",
			func(s *core.Stats) float64 { return float64(s.Lost) }),
	}
	breaker = desc("sash_breaker_state", "1 for the state of the breaker: closed while the store is asked.", "state")
	batches = desc("sash_batch_size", "Takes that were sent to the store together.")

	states = [...]string{"closed", "open", "half open"}
)

// Describe implements [prometheus.Collector].
func (c collector) Describe(to chan<- *prometheus.Desc) {
	for _, metrics := range [][]metric{ofAll, ofMemory, ofGuard} {
		for _, m := range metrics {
			to <- m.Desc
		}
	}
	to <- breaker
	to <- batches
}

// Collect implements [prometheus.Collector].
func (c collector) Collect(to chan<- prometheus.Metric) {
	for _, s := range metricsum.Of(c) {
		send := func(metrics []metric) {
			for _, m := range metrics {
				to <- prometheus.MustNewConstMetric(m.Desc, m.kind, m.value(s), s.Policy)
			}
		}
		send(ofAll)
		if s.MaxKeys > 0 {
			send(ofMemory)
		}
		if s.Breaker != "" {
			send(ofGuard)
			for _, state := range states {
				value := 0.0
				if s.Breaker == state {
					value = 1
				}
				to <- prometheus.MustNewConstMetric(breaker, prometheus.GaugeValue, value, s.Policy, state)
			}
		}
		if s.Batches != nil {
			to <- histogram(s.Batches, s.Policy)
		}
	}
}

// histogram returns the batches of a store. Those of the last size have no upper bound.
func histogram(b *store.Batches, policy string) prometheus.Metric {
	buckets, count := make(map[float64]uint64), uint64(0)
	for i, n := range b.Sizes {
		if count += n; i < len(b.Sizes)-1 {
			buckets[float64(int(1)<<i)] = count
		}
	}
	return prometheus.MustNewConstHistogram(batches, count, float64(b.Takes), buckets, policy)
}
