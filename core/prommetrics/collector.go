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
	metricsum.Value

	kind prometheus.ValueType
}

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(name, help, append([]string{"policy"}, labels...), nil)
}

var (
	metrics = func() (all []metric) {
		for _, v := range metricsum.Values {
			if v.Prometheus == "" {
				continue
			}
			kind := prometheus.GaugeValue
			if v.Counts {
				kind = prometheus.CounterValue
			}
			all = append(all, metric{desc(v.Prometheus, v.Description), v, kind})
		}
		return all
	}()
	breaker = desc("sash_breaker_state", "1 for the state of the breaker: closed while the store is asked.", "state")
	batches = desc("sash_batch_size", "Takes that were sent to the store together.")
)

// Describe implements [prometheus.Collector].
func (c collector) Describe(to chan<- *prometheus.Desc) {
	for _, m := range metrics {
		to <- m.Desc
	}
	to <- breaker
	to <- batches
}

// Collect implements [prometheus.Collector].
func (c collector) Collect(to chan<- prometheus.Metric) {
	for _, s := range metricsum.Of(c) {
		for _, m := range metrics {
			if m.Has(s) {
				to <- prometheus.MustNewConstMetric(m.Desc, m.kind, m.Of(s), s.Policy)
			}
		}
		if metricsum.OfGuard(s) {
			for _, state := range metricsum.States {
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
