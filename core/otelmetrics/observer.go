package otelmetrics

import (
	"context"
	"errors"
	"reflect"
	"runtime"
	"sync"
	"weak"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/event"
	"github.com/sashlimit/sash/core/internal/errclass"
	"github.com/sashlimit/sash/internal/metricsum"
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
	attrRetryAfter = attribute.Key(prefix + "retry_after")
)

// seconds are the upper bounds of histograms.
var seconds = metric.WithExplicitBucketBoundaries(
	1e-6, 1e-5, 1e-4, 2.5e-4, 5e-4, 1e-3, 2.5e-3, 5e-3, 1e-2, 2.5e-2, 5e-2, 0.1, 0.25, 1)

// must panics if the meter cannot make an instrument.
func must[I any](instrument I, err error) I {
	if err != nil {
		panic("otelmetrics: " + err.Error()) //nolint:forbidigo // documented: a mistake of the program
	}
	return instrument
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
// the quota, and for a denial the seconds until there is room. If several limiters decide about a request, the span has
// what the last of them decided: a denial is the last.
func Observer(m metric.Meter) func(context.Context, core.Event) {
	mustHave(m)
	return observerOf(m).observe
}

// observers has those of meters, of which each has one as long as it lives.
var observers struct {
	sync.Mutex

	of map[weak.Pointer[byte]]weak.Pointer[observer]
}

func observerOf(m metric.Meter) *observer {
	v := reflect.ValueOf(m)
	if v.Kind() != reflect.Pointer {
		return newObserver(m)
	}
	meter := weak.Make((*byte)(v.UnsafePointer()))
	observers.Lock()
	defer observers.Unlock()
	if o := observers.of[meter].Value(); o != nil {
		return o
	}
	o := newObserver(m)
	if observers.of == nil {
		observers.of = make(map[weak.Pointer[byte]]weak.Pointer[observer])
	}
	observers.of[meter] = weak.Make(o)
	runtime.AddCleanup(o, func(meter weak.Pointer[byte]) {
		observers.Lock()
		defer observers.Unlock()
		if observers.of[meter].Value() == nil {
			delete(observers.of, meter)
		}
	}, meter)
	return o
}

func newObserver(m metric.Meter) *observer {
	o := &observer{
		duration: must(m.Float64Histogram(prefix+"request.duration", metric.WithUnit("s"), seconds,
			metric.WithDescription("Time until the decision; for Wait, including the wait."))),
		reloads: must(m.Int64Counter(prefix+"rules.reloads", metric.WithUnit("{reload}"),
			metric.WithDescription("Reloads of a file of rules."))),
	}
	instruments := make([]metric.Observable, numCounts)
	for c, of := range counts {
		o.counters[c] = must(m.Int64ObservableCounter(prefix+of.name, metric.WithUnit(of.unit),
			metric.WithDescription(of.description)))
		instruments[c] = o.counters[c]
	}
	for s := range o.bySource {
		o.bySource[s] = []metric.RecordOption{
			metric.WithAttributeSet(attribute.NewSet(attrSource.String(event.Source(s).String()))),
		}
	}
	must(m.RegisterCallback(o.report, instruments...))
	return o
}

// What is counted of each policy. The SDK forgets what a callback does not report any more, and never what is added to
// a counter of another kind.
const (
	requests = iota
	near
	degraded
	refunds
	shadows
	errs
	numCounts
)

var counts = [numCounts]struct{ name, unit, description string }{
	requests: {"requests", "{request}", "Decisions by policy, result and what has decided."},
	near: {
		"near_limit", "{request}", "Requests that were allowed and have left less than a fifth of a limit's quota.",
	},
	degraded: {"degraded", "{request}", "Decisions of the failure policy, because the store did not answer."},
	refunds:  {"refunds", "{refund}", "Refunds of WithRefund."},
	shadows: {
		"shadow_requests", "{request}", "What the policy of WithShadow, or rules with shadow, would have decided.",
	},
	errs: {
		"errors", "{request}", "Requests without a decision, or decided without the store, by the class of the error.",
	},
}

type observer struct {
	counters [numCounts]metric.Int64ObservableCounter
	reloads  metric.Int64Counter // of files, which no customers bring along, so they need not be forgotten

	duration metric.Float64Histogram
	bySource [metricsum.Sources][]metric.RecordOption
	classes  errclass.Set

	policies metricsum.Policies[policy]
}

// Begin and End implement [metricsum.Keeper].
func (*observer) Begin(string) *policy { return new(policy) }
func (*observer) End(*policy)          {}

// report is called when metrics are read.
func (o *observer) report(_ context.Context, to metric.Observer) error {
	for name, p := range o.policies.All() {
		of := attrPolicy.String(name)
		p.report(func(count int, n int64, attrs ...attribute.KeyValue) {
			to.ObserveInt64(o.counters[count], n, metric.WithAttributes(append(attrs, of)...))
		})
	}
	return nil
}

func (o *observer) observe(ctx context.Context, e core.Event) {
	p := o.policies.Of(&e, o)
	if p == nil {
		return
	}
	switch e.Outcome {
	case event.Refunded:
		p.refunded.Add(1)
	case event.RefundFailed:
		p.refundFailed.Add(1)
	case event.ShadowFailed:
		p.shadowFailed.Add(1)
	case event.Reloaded:
		o.reloaded(ctx, &e, "ok")
	case event.ReloadFailed:
		o.reloaded(ctx, &e, "failed")
	case event.Allowed, event.Denied, event.Banned, event.Forbidden, event.Listed, event.Skipped, event.NoKey,
		event.Failed:
		o.decision(ctx, p, &e)
	}
}

func (o *observer) reloaded(ctx context.Context, e *core.Event, result string) {
	o.reloads.Add(ctx, 1, metric.WithAttributes(attrPolicy.String(e.Policy), attrResult.String(result)))
}

func (o *observer) decision(ctx context.Context, p *policy, e *core.Event) {
	source := min(int(e.Source), metricsum.Sources-1)
	p.decisions[e.Outcome][source].Add(1)
	o.duration.Record(ctx, e.Took.Seconds(), o.bySource[source]...)
	if e.NearLimit() {
		p.near.Add(1)
	}
	if e.Decision.Degraded {
		p.degraded.Add(1)
	}
	if e.Shadow != nil {
		if e.Shadow.Allowed {
			p.shadowAllowed.Add(1)
		} else {
			p.shadowDenied.Add(1)
		}
	}
	if e.Err != nil && !errors.Is(e.Err, core.ErrNoKey) && !errors.Is(e.Err, core.ErrForbidden) {
		p.failed(o.classes.Of(e.Err))
	}
	if span := trace.SpanFromContext(ctx); span.IsRecording() {
		note(span, e)
	}
}

// note sets what was decided on the span of a request.
func note(span trace.Span, e *core.Event) {
	attrs := []attribute.KeyValue{
		attrPolicy.String(e.Policy), attrResult.String(e.Outcome.String()), attrSource.String(e.Source.String()),
	}
	switch d := &e.Decision; e.Outcome { //nolint:exhaustive // of the others nothing more is known
	case event.Allowed:
		attrs = append(attrs, attrRemaining.Int(d.Remaining))
	case event.Denied, event.Banned:
		attrs = append(attrs, attrRemaining.Int(d.Remaining), attrRetryAfter.Float64(d.RetryAfter.Seconds()))
	default:
	}
	span.SetAttributes(attrs...)
}

// StoreObserver makes a histogram of calls to stores and returns a function for [core.WithStoreObserver]. It may be
// called several times with one meter.
func StoreObserver(m metric.Meter) func(context.Context, event.StoreCall) {
	mustHave(m)
	calls := must(m.Float64Histogram(prefix+"store.call.duration", metric.WithUnit("s"), seconds,
		metric.WithDescription("Time that calls to the store took, by what it was asked and the class of its error.")))
	known := new(errclass.Set)
	return func(ctx context.Context, c event.StoreCall) {
		attrs := []attribute.KeyValue{attrOperation.String(c.Operation.String())}
		if c.Err != nil {
			attrs = append(attrs, attrError.String(known.OfStore(c.Err)))
		}
		calls.Record(ctx, c.Took.Seconds(), metric.WithAttributeSet(attribute.NewSet(attrs...)))
	}
}
