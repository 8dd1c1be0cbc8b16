// Package prommetrics counts the decisions of limiters for Prometheus.
//
//	limiter, err := core.New(core.PerMinute(100), core.ByIP(),
//		core.WithObserver(prommetrics.Observer(prometheus.DefaultRegisterer)),
//		core.WithStoreObserver(prommetrics.StoreObserver(prometheus.DefaultRegisterer)))
//	...
//	prometheus.MustRegister(prommetrics.Collector(limiter))
//
// [Observer] counts events, [StoreObserver] measures calls to the store, and [Collector] reports what limiters hold
// when Prometheus scrapes. docs/metrics.md describes each metric, and examples/metrics has a dashboard and alerts.
//
// No label is an identity. Labels are names of policies, which come from the program or its rules, fixed words such as
// outcomes, and classes of errors, at most 64 besides "other". So the number of series does not depend on clients. What
// was counted for a policy stays until [Forget]; what limiters hold is reported while one of them is open.
package prommetrics

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/event"
	"github.com/sashlimit/sash/core/internal/metricsum"
)

// Option changes what [Observer] and [StoreObserver] register.
type Option func(*config)

type config struct{ prometheus.HistogramOpts }

// WithBuckets sets the upper bounds of the histogram's buckets, in seconds. The default is 1 µs to 1 s.
func WithBuckets(seconds ...float64) Option {
	return func(c *config) { c.Buckets = seconds }
}

func histograms(opts []Option, name, help string, labels ...string) *prometheus.HistogramVec {
	c := config{prometheus.HistogramOpts{Name: name, Help: help, Buckets: metricsum.Buckets}}
	for _, o := range opts {
		if o != nil {
			o(&c)
		}
	}
	return prometheus.NewHistogramVec(c.HistogramOpts, labels)
}

// register registers a collector, or returns the one of the same metrics that was registered before, so that several
// limiters can be given observers of one registerer. It panics if there is another metric of that name.
func register[C prometheus.Collector](r prometheus.Registerer, c C) C {
	if r == nil {
		//nolint:forbidigo // documented: a mistake of the program
		panic("prommetrics: the registerer is nil; pass one, such as prometheus.DefaultRegisterer")
	}
	err := r.Register(c)
	var known prometheus.AlreadyRegisteredError
	if errors.As(err, &known) {
		if same, ok := known.ExistingCollector.(C); ok {
			return same
		}
	}
	if err != nil {
		//nolint:forbidigo // documented: a mistake of the program
		panic(fmt.Sprintf("prommetrics: a metric cannot be registered: %v; give it a registry of its own, "+
			"or one of prometheus.WrapRegistererWithPrefix", err))
	}
	return c
}

// Observer registers the metrics of decisions and returns a function for [core.WithObserver], which any number of
// limiters may have. It may be called several times with one registerer: the metrics are then the same. It panics if
// they cannot be registered.
//
// After the first event of a policy it allocates nothing, except for errors.
func Observer(r prometheus.Registerer, opts ...Option) func(context.Context, core.Event) {
	events := eventsOf(r)
	durations := register(r, histograms(opts, "sash_decision_duration_seconds", metricsum.DecisionHelp, "source"))
	for s := event.None; s <= event.Lease; s++ {
		durations.WithLabelValues(s.String()) // it is there before it happens
	}
	return func(_ context.Context, e core.Event) {
		if events.Add(&e) {
			durations.WithLabelValues(e.Source.String()).Observe(e.Took.Seconds())
		}
	}
}

// Forget forgets what was counted for a policy, such as that of a customer who has left. A later event begins at 0.
func Forget(r prometheus.Registerer, policy string) { eventsOf(r).Forget(policy) }

// eventsOf registers the counts of events, or returns those that were registered before.
func eventsOf(r prometheus.Registerer) *metricsum.Events {
	return register(r, collector[*metricsum.Events]{new(metricsum.Events)}).of
}

// StoreObserver registers a histogram of calls to stores and returns a function for [core.WithStoreObserver]. It may be
// called several times with one registerer.
func StoreObserver(r prometheus.Registerer, opts ...Option) func(context.Context, event.StoreCall) {
	calls := register(r, histograms(opts, "sash_store_call_duration_seconds", metricsum.StoreCallHelp,
		"operation", "class"))
	classes := new(metricsum.Classes)
	return func(_ context.Context, c event.StoreCall) {
		calls.WithLabelValues(c.Operation.String(), classes.Of(c.Err, metricsum.OtherClass)).Observe(c.Took.Seconds())
	}
}

// Collector reports [core.Stats] of limiters when Prometheus scrapes. Register one collector with all limiters of the
// program, since two have metrics of the same names. For a file of rules, pass a limiter of rules.Set.Limiter.
//
// Limiters of one policy are added up, and dropped when all of them are closed. Metrics of a store are
// reported once, for the first of the limiters that use it.
func Collector(limiters ...*core.Limiter) prometheus.Collector {
	return collector[*metricsum.Limiters]{metricsum.NewLimiters(limiters)}
}

// collector reports the metrics of a source.
type collector[S metricsum.Source] struct{ of S }

func descOf(m metricsum.Metric) *prometheus.Desc {
	return prometheus.NewDesc(m.Prometheus, m.Help, append([]string{"policy"}, strings.Fields(m.Labels)...), nil)
}

// Describe implements [prometheus.Collector].
func (c collector[S]) Describe(to chan<- *prometheus.Desc) {
	for _, m := range c.of.Metrics() {
		to <- descOf(m)
	}
}

// Collect implements [prometheus.Collector].
func (c collector[S]) Collect(to chan<- prometheus.Metric) {
	c.of.Report(func(s metricsum.Sample) {
		kind := prometheus.GaugeValue
		if s.Counter {
			kind = prometheus.CounterValue
		}
		labels := append([]string{s.Policy}, s.Values...)
		to <- prometheus.MustNewConstMetric(descOf(s.Metric), kind, s.Value, labels...)
	})
}
