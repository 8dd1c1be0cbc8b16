package otelmetrics

import (
	"context"
	"errors"
	"strings"

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
	return register(m, metricsum.NewLimiters(limiters))
}

// register makes instruments for the metrics of a source, which is asked when they are read.
func register(m metric.Meter, source metricsum.Source) (metric.Registration, error) {
	known := make(map[string]metric.Int64Observable)
	var all []metric.Observable
	for _, of := range source.Metrics() {
		var err error
		unit, description := metric.WithUnit(of.Unit), metric.WithDescription(of.Help)
		if of.Counter {
			known[of.OTel], err = m.Int64ObservableCounter(prefix+of.OTel, unit, description)
		} else {
			known[of.OTel], err = m.Int64ObservableUpDownCounter(prefix+of.OTel, unit, description)
		}
		if err != nil {
			return nil, err
		}
		all = append(all, known[of.OTel])
	}
	return m.RegisterCallback(func(_ context.Context, to metric.Observer) error {
		source.Report(func(s metricsum.Sample) {
			if s.Value == 0 && !s.Began.IsZero() {
				return // an event that has not happened
			}
			attrs := []attribute.KeyValue{attrPolicy.String(s.Policy)}
			for i, label := range strings.Fields(s.Labels) {
				attrs = append(attrs, attributes[label].String(s.Values[i]))
			}
			to.ObserveInt64(known[s.OTel], int64(s.Value), metric.WithAttributes(attrs...))
		})
		return nil
	}, all...)
}

// attributes are those of labels.
var attributes = map[string]attribute.Key{
	"outcome": attrResult, "result": attrResult, "source": attrSource, "class": attrError, "state": attrState,
	"override": attrOverride,
}
