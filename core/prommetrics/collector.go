package prommetrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/store"
	"github.com/sashlimit/sash/internal/metricsum"
)

// Collector reports [core.Stats] of limiters when Prometheus scrapes. Register one collector with all limiters of the
// program, since two have metrics of the same names. For a file of rules, pass a limiter of rules.Set.Limiter.
//
// Limiters of one policy are added up. Metrics of a store are reported once, for the first of the limiters that use it.
func Collector(limiters ...*core.Limiter) prometheus.Collector { return collector(limiters) }

type collector []*core.Limiter

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(name, help, append([]string{"policy"}, labels...), nil)
}

var (
	batches = desc("sash_batch_size", metricsum.BatchHelp)

	// descs has those of all metrics that are not histograms.
	descs = func() map[*metricsum.Metric]*prometheus.Desc {
		all := make(map[*metricsum.Metric]*prometheus.Desc)
		for _, metrics := range [][]*metricsum.Metric{metricsum.EventMetrics, metricsum.StatsMetrics} {
			for _, m := range metrics {
				if m.Prometheus != "" {
					all[m] = desc(m.Prometheus, m.Help, m.Labels...)
				}
			}
		}
		return all
	}()
)

func describe(to chan<- *prometheus.Desc, metrics []*metricsum.Metric) {
	for _, m := range metrics {
		if d := descs[m]; d != nil {
			to <- d
		}
	}
}

func collect(to chan<- prometheus.Metric) func(metricsum.Sample) {
	return func(s metricsum.Sample) {
		d, labels := descs[s.Metric], append([]string{s.Policy}, s.Labels...)
		switch {
		case d == nil:
		case s.Counter && !s.Began.IsZero():
			to <- prometheus.MustNewConstMetricWithCreatedTimestamp(d, prometheus.CounterValue, s.Value, s.Began,
				labels...)
		case s.Counter:
			to <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, s.Value, labels...)
		default:
			to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, s.Value, labels...)
		}
	}
}

// Describe implements [prometheus.Collector].
func (c collector) Describe(to chan<- *prometheus.Desc) {
	describe(to, metricsum.StatsMetrics)
	to <- batches
}

// Collect implements [prometheus.Collector].
func (c collector) Collect(to chan<- prometheus.Metric) {
	for _, s := range metricsum.Of(c) {
		metricsum.Report(s, collect(to))
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
