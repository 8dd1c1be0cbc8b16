package prommetrics

import (
	"strings"

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

// collector reports the metrics of a source.
type collector struct{ metricsum.Source }

func descOf(m metricsum.Metric) *prometheus.Desc {
	return prometheus.NewDesc(m.Prometheus, m.Help, append([]string{"policy"}, strings.Fields(m.Labels)...), nil)
}

// Describe implements [prometheus.Collector].
func (c collector) Describe(to chan<- *prometheus.Desc) {
	for _, m := range c.Metrics() {
		to <- descOf(m)
	}
}

// Collect implements [prometheus.Collector].
func (c collector) Collect(to chan<- prometheus.Metric) {
	c.Report(func(s metricsum.Sample) {
		kind, labels := prometheus.GaugeValue, append([]string{s.Policy}, s.Values...)
		if s.Counter {
			kind = prometheus.CounterValue
		}
		m := prometheus.MustNewConstMetric(descOf(s.Metric), kind, s.Value, labels...)
		if !s.Began.IsZero() {
			m = prometheus.MustNewConstMetricWithCreatedTimestamp(descOf(s.Metric), kind, s.Value, s.Began, labels...)
		}
		to <- m
	})
}
