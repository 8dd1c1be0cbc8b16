package otelmetrics

import (
	"context"
	"errors"
	"math"
	"slices"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/internal/metricsum"
)

// Register reports [core.Stats] of limiters when metrics are read, until Unregister of the registration is called.
// Register all limiters of a program at once: limiters of one policy are added up, and metrics of a store are reported
// once, for the first of the limiters that use it. For a file of rules, pass a limiter of rules.Set.Limiter.
func Register(m metric.Meter, limiters ...*core.Limiter) (metric.Registration, error) {
	if m == nil {
		return nil, errors.New(noMeter)
	}
	limiters = slices.Clone(limiters)
	known, all, err := instruments(m, metricsum.StatsMetrics)
	if err != nil {
		return nil, err
	}
	return m.RegisterCallback(func(_ context.Context, to metric.Observer) error {
		for _, s := range metricsum.Of(limiters) {
			metricsum.Report(s, known.report(to))
		}
		return nil
	}, all...)
}

// observables has an instrument for each metric.
type observables map[*metricsum.Metric]metric.Int64Observable

// instruments makes instruments for metrics, and returns them in a list as well.
func instruments(m metric.Meter, metrics []*metricsum.Metric) (known observables, all []metric.Observable, err error) {
	known = make(observables)
	for _, of := range metrics {
		unit, description := metric.WithUnit(of.Unit), metric.WithDescription(of.Help)
		if of.Counter {
			known[of], err = m.Int64ObservableCounter(prefix+of.OTel, unit, description)
		} else {
			known[of], err = m.Int64ObservableUpDownCounter(prefix+of.OTel, unit, description)
		}
		if err != nil {
			return nil, nil, err
		}
		all = append(all, known[of])
	}
	return known, all, nil
}

// attributes are those of labels.
var attributes = map[string]attribute.Key{
	"outcome": attrResult, "result": attrResult, "source": attrSource, "class": attrError, "state": attrState,
	"override": attrOverride,
}

// report returns a function that reports samples, but no events that have not happened.
func (known observables) report(to metric.Observer) func(metricsum.Sample) {
	return func(s metricsum.Sample) {
		if s.Value == 0 && !s.Began.IsZero() {
			return
		}
		if s.Unit == "ms" {
			s.Value *= 1000
		}
		attrs := []attribute.KeyValue{attrPolicy.String(s.Policy)}
		for i, label := range s.Metric.Labels {
			attrs = append(attrs, attributes[label].String(s.Labels[i]))
		}
		to.ObserveInt64(known[s.Metric], int64(math.Round(s.Value)), metric.WithAttributes(attrs...))
	}
}
