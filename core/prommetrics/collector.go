package prommetrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/internal/metricsum"
)

// Collector reports [core.Stats] of limiters when Prometheus scrapes. Register one collector with all limiters of the
// program, since two have metrics of the same names. For a file of rules, pass a limiter of rules.Set.Limiter.
//
// Limiters of one policy are added up, and dropped when all of them are closed. Metrics of a store are
// reported once, for the first of the limiters that use it.
func Collector(limiters ...*core.Limiter) prometheus.Collector {
	return collector{metricsum.NewLimiters(limiters)}
}

type collector struct{ *metricsum.Limiters }

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(name, help, append([]string{"policy"}, labels...), nil)
}

// descs has those of all metrics that are not histograms.
var descs = func() map[*metricsum.Metric]*prometheus.Desc {
	all := make(map[*metricsum.Metric]*prometheus.Desc)
	for _, metrics := range [][]*metricsum.Metric{metricsum.EventMetrics, metricsum.StatsMetrics} {
		for _, m := range metrics {
			all[m] = desc(m.Prometheus, m.Help, m.Labels...)
		}
	}
	return all
}()

func describe(to chan<- *prometheus.Desc, metrics []*metricsum.Metric) {
	for _, m := range metrics {
		to <- descs[m]
	}
}

func collect(to chan<- prometheus.Metric) func(metricsum.Sample) {
	return func(s metricsum.Sample) {
		d, labels := descs[s.Metric], append([]string{s.Policy}, s.Labels...)
		switch {
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
}

// Collect implements [prometheus.Collector].
func (c collector) Collect(to chan<- prometheus.Metric) {
	for _, s := range c.Sums() {
		metricsum.Report(s, collect(to))
	}
}
