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
// No attribute is an identity, and the number of their values does not depend on clients. A policy is no longer
// reported when its last limiter is closed.
package otelmetrics

import (
	"context"
	"sync"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/event"
	"github.com/sashlimit/sash/core/internal/metricsum"
)

const prefix = "sash.rate_limiting."

// The attributes of metrics and spans.
const (
	attrPolicy     = attribute.Key(prefix + "policy")
	attrResult     = attribute.Key(prefix + "result")
	attrSource     = attribute.Key(prefix + "source")
	attrError      = attribute.Key("error.type")
	attrOperation  = attribute.Key(prefix + "store.operation")
	attrState      = attribute.Key(prefix + "breaker.state")
	attrRemaining  = attribute.Key(prefix + "remaining")
	attrOverride   = attribute.Key(prefix + "override")
	attrRetryAfter = attribute.Key(prefix + "retry_after")
)

// must panics if the meter cannot make an instrument.
func must[I any](instrument I, err error) I {
	if err != nil {
		panic("otelmetrics: " + err.Error()) //nolint:forbidigo // documented: a mistake of the program
	}
	return instrument
}

func histogram(m metric.Meter, name, help string) metric.Float64Histogram {
	return must(m.Float64Histogram(prefix+name, metric.WithUnit("s"), metric.WithDescription(help),
		metric.WithExplicitBucketBoundaries(metricsum.Buckets...)))
}

func mustHave(m metric.Meter) {
	if m == nil {
		panic(noMeter) //nolint:forbidigo // documented: a mistake of the program
	}
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
func Observer(m metric.Meter) func(context.Context, core.Event) {
	mustHave(m)
	return observerOf(m).observe
}

// Forget forgets what was counted for a policy by observers of a meter, such as that of a customer who has left. A
// later event begins at 0.
func Forget(m metric.Meter, policy string) {
	mustHave(m)
	observerOf(m).events.Forget(policy)
}

// observers has the observer of each meter, so that all that a program makes of one meter are the same.
var observers = struct {
	sync.Mutex

	of map[metric.Meter]*observer
}{of: make(map[metric.Meter]*observer)}

func observerOf(m metric.Meter) *observer {
	observers.Lock()
	defer observers.Unlock()
	o := observers.of[m]
	if o == nil {
		o = newObserver(m)
		observers.of[m] = o
	}
	return o
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
	switch d := &e.Decision; e.Outcome { //nolint:exhaustive // of the others nothing more is known
	case event.Allowed:
		if len(d.Limits()) > 0 { // none for an override without limits, and under FailOpen
			attrs = append(attrs, attrRemaining.Int(d.Remaining))
		}
	case event.Denied, event.Banned:
		attrs = append(attrs, attrRemaining.Int(d.Remaining), attrRetryAfter.Float64(d.RetryAfter.Seconds()))
	default:
	}
	if o := e.Decision.Overridden; o != nil {
		attrs = append(attrs, attrOverride.String(o.Kind()))
	}
	span.SetAttributes(attrs...)
}

// StoreObserver makes a histogram of calls to stores and returns a function for [core.WithStoreObserver]. It may be
// called several times with one meter.
func StoreObserver(m metric.Meter) func(context.Context, event.StoreCall) {
	mustHave(m)
	calls := histogram(m, "store.call.duration", metricsum.StoreCallHelp)
	known := new(metricsum.Classes)
	return func(ctx context.Context, c event.StoreCall) {
		attrs := []attribute.KeyValue{attrOperation.String(c.Operation.String())}
		if c.Err != nil {
			attrs = append(attrs, attrError.String(known.OfStore(c.Err)))
		}
		calls.Record(ctx, c.Took.Seconds(), metric.WithAttributeSet(attribute.NewSet(attrs...)))
	}
}
