package otelmetrics

import (
	"context"
	"errors"
	"math"
	"slices"

	"go.opentelemetry.io/otel/metric"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/internal/metricsum"
)

// Register reports [core.Stats] of limiters when metrics are read, until the registration is undone. Register all
// limiters of a program at once: those of one policy are added up, and what is of a store is reported once, for the
// first of the limiters that use it. For a file of rules, give it a limiter that the Limiter method of the rules
// returns.
func Register(m metric.Meter, limiters ...*core.Limiter) (metric.Registration, error) {
	if m == nil {
		return nil, errors.New(noMeter)
	}
	limiters = slices.Clone(limiters)
	instruments := make([]metric.Int64Observable, len(metricsum.Values))
	var all []metric.Observable
	for i, v := range metricsum.Values {
		var err error
		unit, description := metric.WithUnit(v.Unit), metric.WithDescription(v.Description)
		if v.Counts {
			instruments[i], err = m.Int64ObservableCounter(prefix+v.OTel, unit, description)
		} else {
			instruments[i], err = m.Int64ObservableUpDownCounter(prefix+v.OTel, unit, description)
		}
		if err != nil {
			return nil, err
		}
		all = append(all, instruments[i])
	}
	breaker, err := m.Int64ObservableUpDownCounter(prefix+"breaker", metric.WithUnit("1"),
		metric.WithDescription("1 for the state of the breaker: closed while the store is asked."))
	if err != nil {
		return nil, err
	}
	return m.RegisterCallback(func(_ context.Context, to metric.Observer) error {
		for _, s := range metricsum.Of(limiters) {
			of := metric.WithAttributes(attrPolicy.String(s.Policy))
			for i, v := range metricsum.Values {
				if !v.Has(s) {
					continue
				}
				n := v.Of(s)
				if v.Unit == "ms" {
					n *= 1000
				}
				to.ObserveInt64(instruments[i], int64(math.Round(n)), of)
			}
			if !metricsum.OfGuard(s) {
				continue
			}
			for _, state := range metricsum.States {
				n := int64(0)
				if s.Breaker == state {
					n = 1
				}
				to.ObserveInt64(breaker, n, of, metric.WithAttributes(attrState.String(state)))
			}
		}
		return nil
	}, append(all, breaker)...)
}
