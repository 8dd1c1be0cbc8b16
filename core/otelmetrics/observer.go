package otelmetrics

import (
	"context"
	"errors"
	"sync/atomic"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/event"
	"github.com/sashlimit/sash/core/internal/classes"
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

func counter(m metric.Meter, name, unit, description string) metric.Int64Counter {
	return must(m.Int64Counter(prefix+name, metric.WithUnit(unit), metric.WithDescription(description)))
}

// Observer makes instruments and returns a function for [core.WithObserver], which any number of limiters may have. It
// may be called several times with one meter: the metrics are then the same. It panics if the meter is nil or refuses
// an instrument.
//
// If the request has a span that is recorded, the function sets the policy, result and source on it, what is left of
// the quota, and for a denial the seconds until there is room. If several limiters decide about a request, the span has
// what the last of them decided: a denial is the last.
func Observer(m metric.Meter) func(context.Context, core.Event) {
	if m == nil {
		//nolint:forbidigo // documented: a mistake of the program
		panic("otelmetrics: the meter is nil: give it one, such as otel.Meter")
	}
	o := &observer{
		requests: counter(m, "requests", "{request}", "Decisions by policy, result and what has decided."),
		near: counter(m, "near_limit", "{request}",
			"Requests that were allowed and have left less than a fifth of a limit's quota."),
		degraded: counter(m, "degraded", "{request}",
			"Decisions of the failure policy, because the store did not answer."),
		refunds: counter(m, "refunds", "{refund}", "Refunds of WithRefund."),
		shadows: counter(m, "shadow_requests", "{request}",
			"What the policy of WithShadow, or rules with shadow, would have decided."),
		reloads: counter(m, "rules.reloads", "{reload}", "Reloads of a file of rules."),
		errs: counter(m, "errors", "{request}",
			"Requests without a decision, or decided without the store, by the class of the error."),
		duration: must(m.Float64Histogram(prefix+"request.duration", metric.WithUnit("s"), seconds,
			metric.WithDescription("Time until the decision; for Wait, including the wait."))),
	}
	for s := range o.bySource {
		o.bySource[s] = []metric.RecordOption{
			metric.WithAttributeSet(attribute.NewSet(attrSource.String(event.Source(s).String()))),
		}
	}
	return o.observe
}

const (
	outcomes = int(event.Failed) + 1 // of decisions
	sources  = int(event.Local) + 1
)

type observer struct {
	requests, near, degraded, refunds, shadows, reloads, errs metric.Int64Counter

	duration metric.Float64Histogram
	bySource [sources][]metric.RecordOption
	classes  classes.Set

	policies classes.Names[policy]
}

// policy has the attributes of a policy's metrics. Making them for each request would allocate.
type policy struct {
	decisions [outcomes][sources]atomic.Pointer[[]metric.AddOption]

	alone, shadowAllowed, shadowDenied []metric.AddOption
}

func with(attrs ...attribute.KeyValue) []metric.AddOption {
	return []metric.AddOption{metric.WithAttributeSet(attribute.NewSet(attrs...))}
}

// policy returns the attributes of a policy, which are made when it is new.
func (o *observer) policy(name string) *policy { return o.policies.Of(name, o.newPolicy) }

func (o *observer) newPolicy(name string) *policy {
	of := attrPolicy.String(name)
	return &policy{
		alone: with(of), shadowAllowed: with(of, attrResult.String("allowed")),
		shadowDenied: with(of, attrResult.String("denied")),
	}
}

func (o *observer) observe(ctx context.Context, e core.Event) {
	add := func(to metric.Int64Counter, result string) {
		to.Add(ctx, 1, with(attrPolicy.String(e.Policy), attrResult.String(result))...)
	}
	switch e.Outcome {
	case event.Refunded:
		add(o.refunds, "ok")
	case event.RefundFailed:
		add(o.refunds, "failed")
	case event.ShadowFailed:
		add(o.shadows, "failed")
	case event.Reloaded:
		add(o.reloads, "ok")
	case event.ReloadFailed:
		add(o.reloads, "failed")
	case event.Allowed, event.Denied, event.Banned, event.Forbidden, event.Listed, event.Skipped, event.NoKey,
		event.Failed:
		o.decision(ctx, &e)
	}
}

func (o *observer) decision(ctx context.Context, e *core.Event) {
	p := o.policy(e.Policy)
	source := min(int(e.Source), sources-1)
	at := &p.decisions[e.Outcome][source]
	attrs := at.Load()
	if attrs == nil {
		made := with(attrPolicy.String(e.Policy), attrResult.String(e.Outcome.String()),
			attrSource.String(event.Source(source).String()))
		attrs = &made
		at.Store(attrs)
	}
	o.requests.Add(ctx, 1, *attrs...)
	o.duration.Record(ctx, e.Took.Seconds(), o.bySource[source]...)
	if e.NearLimit() {
		o.near.Add(ctx, 1, p.alone...)
	}
	if e.Decision.Degraded {
		o.degraded.Add(ctx, 1, p.alone...)
	}
	if e.Shadow != nil {
		attrs := p.shadowDenied
		if e.Shadow.Allowed {
			attrs = p.shadowAllowed
		}
		o.shadows.Add(ctx, 1, attrs...)
	}
	if e.Err != nil && !errors.Is(e.Err, core.ErrNoKey) && !errors.Is(e.Err, core.ErrForbidden) {
		o.errs.Add(ctx, 1, with(attrPolicy.String(e.Policy), attrError.String(o.classes.Of(e.Err)))...)
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
	if m == nil {
		//nolint:forbidigo // documented: a mistake of the program
		panic("otelmetrics: the meter is nil: give it one, such as otel.Meter")
	}
	calls := must(m.Float64Histogram(prefix+"store.call.duration", metric.WithUnit("s"), seconds,
		metric.WithDescription("Time that calls to the store took, by what it was asked and the class of its error.")))
	known := new(classes.Set)
	return func(ctx context.Context, c event.StoreCall) {
		attrs := []attribute.KeyValue{attrOperation.String(c.Operation.String())}
		if c.Err != nil {
			attrs = append(attrs, attrError.String(known.OfStore(c.Err)))
		}
		calls.Record(ctx, c.Took.Seconds(), metric.WithAttributeSet(attribute.NewSet(attrs...)))
	}
}
