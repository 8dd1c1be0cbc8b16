package prommetrics

import (
	"errors"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
)

// Option changes what [Observer] and [StoreObserver] register.
type Option func(*config)

type config struct{ buckets []float64 }

// WithBuckets sets the upper bounds of the histogram's buckets, in seconds. The default is 1 µs to 1 s.
func WithBuckets(seconds ...float64) Option { return func(c *config) { c.buckets = seconds } }

func configure(opts []Option) config {
	c := config{buckets: []float64{
		1e-6, 1e-5, 1e-4, 2.5e-4, 5e-4, 1e-3, 2.5e-3, 5e-3, 1e-2, 2.5e-2, 5e-2, 0.1, 0.25, 1,
	}}
	for _, o := range opts {
		if o != nil {
			o(&c)
		}
	}
	return c
}

// register registers a collector, or returns the one of the same metric that was registered before, so that several
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

func counters(name, help string, labels ...string) *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
}

func (c config) histograms(name, help string, labels ...string) *prometheus.HistogramVec {
	return prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: c.buckets}, labels)
}
