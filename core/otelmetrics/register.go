package otelmetrics

import (
	"context"
	"errors"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/internal/metricsum"
)

// Register reports [core.Stats] of limiters when metrics are read, until Unregister of the registration is called.
// Register all limiters of a program at once: limiters of one policy are added up, and metrics of a store are reported
// once, for the first of the limiters that use it. For a file of rules, pass a limiter of rules.Set.Limiter.
func Register(m metric.Meter, limiters ...*core.Limiter) (metric.Registration, error) {
	if m == nil {
		return nil, errors.New(noMeter)
	}
	all := metricsum.NewLimiters(limiters)
	return register(m, metricsum.StatsMetrics, func(yield func(metricsum.Sample)) {
		for _, s := range all.Sums() {
			metricsum.Report(s, yield)
		}
	})
}

// register makes instruments for metrics. When they are read, report calls yield with their values.
func register(
	m metric.Meter, metrics []*metricsum.Metric, report func(yield func(metricsum.Sample)),
) (metric.Registration, error) {
	known := make(map[*metricsum.Metric]metric.Int64Observable)
	var all []metric.Observable
	for _, of := range metrics {
		var err error
		unit, description := metric.WithUnit(of.Unit), metric.WithDescription(of.Help)
		if of.Counter {
			known[of], err = m.Int64ObservableCounter(prefix+of.OTel, unit, description)
		} else {
			known[of], err = m.Int64ObservableUpDownCounter(prefix+of.OTel, unit, description)
		}
		if err != nil {
			return nil, err
		}
		all = append(all, known[of])
	}
	return m.RegisterCallback(func(_ context.Context, to metric.Observer) error {
		report(func(s metricsum.Sample) { observe(to, known[s.Metric], s) })
		return nil
	}, all...)
}

// attributes are those of labels.
var attributes = map[string]attribute.Key{
	"outcome": attrResult, "result": attrResult, "source": attrSource, "class": attrError, "state": attrState,
	"override": attrOverride,
}

// observe passes a value on, unless it is of events that have not happened.
func observe(to metric.Observer, instrument metric.Int64Observable, s metricsum.Sample) {
	if s.Value == 0 && !s.Began.IsZero() {
		return
	}
	attrs := []attribute.KeyValue{attrPolicy.String(s.Policy)}
	for i, label := range s.Metric.Labels {
		attrs = append(attrs, attributes[label].String(s.Labels[i]))
	}
	to.ObserveInt64(instrument, int64(s.Value), metric.WithAttributes(attrs...))
}
