// Package otelmetrics counts the decisions of limiters with OpenTelemetry's API of metrics, and sets them as attributes
// of the spans of requests.
//
//	meter := otel.Meter("github.com/sashlimit/sash")
//	limiter, err := core.New(core.PerMinute(100), core.ByIP(),
//		core.WithObserver(otelmetrics.Observer(meter)),
//		core.WithStoreObserver(otelmetrics.StoreObserver(meter)))
//	...
//	registration, err := otelmetrics.Register(meter, limiter)
//
// Experimental: OpenTelemetry has no general convention for rate limiters yet. The names of this package resemble
// aspnetcore.rate_limiting, and will change if there is a convention. docs/metrics.md lists them.
//
// No attribute is an identity, and the number of their values does not depend on clients. What was counted for a policy
// stays until [Forget]; what limiters hold is reported while one of them is open.
package otelmetrics

import (
	"context"
	"errors"
	"strings"
	"sync"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/event"
	"github.com/sashlimit/sash/core/internal/metricsum"
)

const prefix = "sash.rate_limiting."

// attributes are those of labels, as the metrics of package metricsum name them.
var attributes = map[string]attribute.Key{
	"outcome": attrResult, "result": attrResult, "source": attrSource, "override": attrOverride, "class": attrError,
	"state": prefix + "breaker.state",
}

// Attributes that spans and histograms have as well.
const (
	attrPolicy   = attribute.Key(prefix + "policy")
	attrResult   = attribute.Key(prefix + "result")
	attrSource   = attribute.Key(prefix + "source")
	attrOverride = attribute.Key(prefix + "override")
	attrError    = attribute.Key("error.type")
)

// must panics if the meter cannot make an instrument.
func must[I any](instrument I, err error) I {
	if err != nil {
		panic("otelmetrics: " + err.Error()) //nolint:forbidigo // documented: a mistake of the program
	}
	return instrument
}

// histogram is the first instrument that each function makes.
func histogram(m metric.Meter, name, help string) metric.Float64Histogram {
	if m == nil {
		panic(noMeter) //nolint:forbidigo // documented: a mistake of the program
	}
	return must(m.Float64Histogram(prefix+name, metric.WithUnit("s"), metric.WithDescription(help),
		metric.WithExplicitBucketBoundaries(metricsum.Buckets...)))
}

const noMeter = "otelmetrics: the meter is nil; pass one, such as otel.Meter"

// Observer makes instruments and returns a function for [core.WithObserver], which any number of limiters may have. It
// may be called several times with one meter: the metrics are then the same. It panics if the meter is nil or refuses
// an instrument.
//
// If the request has a span that is recorded, the function sets the policy, result and source on it, what is left of
// the quota, what kind of override was in force, and for a denial the seconds until there is room. If several limiters
// decide about a request, the span has what the last of them decided: a denial is the last. What is left, and an
// override, are of an earlier one if the last does not set them.
func Observer(m metric.Meter) func(context.Context, core.Event) { return observerOf(m).observe }

// Forget forgets what was counted for a policy by observers of a meter, such as that of a customer who has left. A
// later event begins at 0.
func Forget(m metric.Meter, policy string) { observerOf(m).events.Forget(policy) }

// observers has a function for each meter that makes its only observer.
var observers sync.Map

func observerOf(m metric.Meter) *observer {
	made, _ := observers.LoadOrStore(m, sync.OnceValue(func() *observer { return newObserver(m) }))
	return made.(func() *observer)() //nolint:forcetypeassert // as it is stored
}

type observer struct {
	events   metricsum.Events
	duration metric.Float64Histogram
	bySource [event.Lease + 1][]metric.RecordOption
}

func newObserver(m metric.Meter) *observer {
	o := &observer{duration: histogram(m, "request.duration", metricsum.DecisionHelp)}
	for s := range o.bySource {
		o.bySource[s] = []metric.RecordOption{
			metric.WithAttributeSet(attribute.NewSet(attrSource.String(event.Source(s).String()))),
		}
	}
	// The SDK forgets what a callback does not report any more, and never what is added to a counter of another kind.
	must(register(m, &o.events))
	return o
}

func (o *observer) observe(ctx context.Context, e core.Event) {
	if !o.events.Add(&e) {
		return
	}
	o.duration.Record(ctx, e.Took.Seconds(), o.bySource[min(e.Source, event.Lease)]...)
	if span := trace.SpanFromContext(ctx); span.IsRecording() {
		note(span, &e)
	}
}

// note sets what was decided on the span of a request.
func note(span trace.Span, e *core.Event) {
	attrs := []attribute.KeyValue{
		attrPolicy.String(e.Policy), attrResult.String(e.Outcome.String()), attrSource.String(e.Source.String()),
	}
	d, denied := &e.Decision, e.Outcome == event.Denied || e.Outcome == event.Banned
	if denied || len(d.Limits()) > 0 { // none for an override without limits, and under FailOpen
		attrs = append(attrs, attribute.Int(prefix+"remaining", d.Remaining))
	}
	if denied {
		attrs = append(attrs, attribute.Float64(prefix+"retry_after", d.RetryAfter.Seconds()))
	}
	if o := d.Overridden; o != nil {
		attrs = append(attrs, attrOverride.String(o.Kind()))
	}
	span.SetAttributes(attrs...)
}

// StoreObserver makes a histogram of calls to stores and returns a function for [core.WithStoreObserver]. It may be
// called several times with one meter.
func StoreObserver(m metric.Meter) func(context.Context, event.StoreCall) {
	calls := histogram(m, "store.call.duration", metricsum.StoreCallHelp)
	classes := new(metricsum.Classes)
	return func(ctx context.Context, c event.StoreCall) {
		attrs := []attribute.KeyValue{attribute.String(prefix+"store.operation", c.Operation.String())}
		if c.Err != nil {
			attrs = append(attrs, attrError.String(classes.Of(c.Err, metricsum.OtherClass)))
		}
		calls.Record(ctx, c.Took.Seconds(), metric.WithAttributeSet(attribute.NewSet(attrs...)))
	}
}

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
			attrs := append(make([]attribute.KeyValue, 0, 3), attrPolicy.String(s.Policy))
			for i, label := range strings.Fields(s.Labels) {
				attrs = append(attrs, attributes[label].String(s.Values[i]))
			}
			to.ObserveInt64(known[s.OTel], int64(s.Value), metric.WithAttributes(attrs...))
		})
		return nil
	}, all...)
}
