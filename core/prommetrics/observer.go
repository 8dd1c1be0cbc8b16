package prommetrics

import (
	"context"
	"errors"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/event"
	"github.com/sashlimit/sash/core/internal/errclass"
	"github.com/sashlimit/sash/internal/metricsum"
)

// Observer registers the metrics of decisions and returns a function for [core.WithObserver], which any number of
// limiters may have. It may be called several times with one registerer: the metrics are then the same. It panics if
// they cannot be registered.
//
// It allocates nothing once a policy has had the outcome before, except for errors.
func Observer(r prometheus.Registerer, opts ...Option) func(context.Context, core.Event) {
	c := configure(opts)
	o := &observer{
		decisions: counters("sash_decisions_total",
			"Decisions by policy, outcome and what has decided. Calls of Peek are among them.",
			"policy", "outcome", "source"),
		near: counters("sash_near_limit_total",
			"Requests that were allowed and have left less than a fifth of a limit's quota.", "policy"),
		degraded: counters("sash_degraded_decisions_total",
			"Decisions of the failure policy, because the store did not answer.", "policy"),
		durations: c.histograms("sash_decision_duration_seconds",
			"Time until the decision; for Wait, including the wait.", "source"),
		refunds: counters("sash_refunds_total", "Refunds of WithRefund.", "policy", "result"),
		shadows: counters("sash_shadow_decisions_total",
			"What the policy of WithShadow, or rules with shadow, would have decided.", "policy", "outcome"),
		reloads: counters("sash_rules_reloads_total", "Reloads of a file of rules.", "policy", "result"),
		errs: counters("sash_errors_total",
			"Requests without a decision, or decided without the store, by the class of the error.", "policy", "class"),
	}
	for s := range o.bySource {
		o.bySource[s] = o.durations.WithLabelValues(event.Source(s).String())
	}
	return register(r, o).observe
}

// observer is the collector of its metrics, so that all that are made with one registerer are the same.
type observer struct {
	decisions, near, degraded, refunds, shadows, reloads, errs *prometheus.CounterVec

	durations *prometheus.HistogramVec
	bySource  [metricsum.Sources]prometheus.Observer
	classes   errclass.Set

	policies metricsum.Policies[policy]
}

func (o *observer) all() []prometheus.Collector {
	return []prometheus.Collector{
		o.decisions, o.near, o.degraded, o.refunds, o.shadows, o.reloads, o.errs, o.durations,
	}
}

// Describe implements [prometheus.Collector].
func (o *observer) Describe(to chan<- *prometheus.Desc) {
	for _, c := range o.all() {
		c.Describe(to)
	}
}

// Collect implements [prometheus.Collector].
func (o *observer) Collect(to chan<- prometheus.Metric) {
	for _, c := range o.all() {
		c.Collect(to)
	}
}

// Begin implements [metricsum.Keeper].
func (o *observer) Begin(name string) *policy {
	p := &policy{name: name, counters: make(map[series]prometheus.Counter)}
	p.near, p.degraded = p.counter(o.near, "", ""), p.counter(o.degraded, "", "")
	p.shadowAllowed, p.shadowDenied = p.counter(o.shadows, "allowed", ""), p.counter(o.shadows, "denied", "")
	return p
}

// End implements [metricsum.Keeper].
func (o *observer) End(p *policy) { p.end() }

func (o *observer) observe(_ context.Context, e core.Event) {
	p := o.policies.Of(&e, o)
	if p == nil {
		return
	}
	switch e.Outcome {
	case event.Refunded:
		p.counter(o.refunds, "ok", "").Inc()
	case event.RefundFailed:
		p.counter(o.refunds, "failed", "").Inc()
	case event.ShadowFailed:
		p.counter(o.shadows, "failed", "").Inc()
	case event.Reloaded:
		p.counter(o.reloads, "ok", "").Inc()
	case event.ReloadFailed:
		p.counter(o.reloads, "failed", "").Inc()
	case event.Allowed, event.Denied, event.Banned, event.Forbidden, event.Listed, event.Skipped, event.NoKey,
		event.Failed:
		o.decision(p, &e)
	}
}

func (o *observer) decision(p *policy, e *core.Event) {
	outcome, source := int(e.Outcome), min(int(e.Source), metricsum.Sources-1)
	at := &p.decisions[outcome][source]
	c := at.Load()
	if c == nil {
		c = &counter{p.counter(o.decisions, e.Outcome.String(), event.Source(source).String())}
		at.Store(c)
	}
	c.Inc()
	o.bySource[source].Observe(e.Took.Seconds())
	if e.NearLimit() {
		p.near.Inc()
	}
	if e.Decision.Degraded {
		p.degraded.Inc()
	}
	if e.Shadow != nil {
		if e.Shadow.Allowed {
			p.shadowAllowed.Inc()
		} else {
			p.shadowDenied.Inc()
		}
	}
	if e.Err != nil && !errors.Is(e.Err, core.ErrNoKey) && !errors.Is(e.Err, core.ErrForbidden) {
		p.counter(o.errs, o.classes.Of(e.Err), "").Inc()
	}
}

// StoreObserver registers a histogram of calls to stores and returns a function for [core.WithStoreObserver]. It may be
// called several times with one registerer.
func StoreObserver(r prometheus.Registerer, opts ...Option) func(context.Context, event.StoreCall) {
	calls := register(r, configure(opts).histograms("sash_store_call_duration_seconds",
		"Time that calls to the store took, by what it was asked and the class of its error.", "operation", "class"))
	known := new(errclass.Set)
	return func(_ context.Context, c event.StoreCall) {
		calls.WithLabelValues(c.Operation.String(), known.OfStore(c.Err)).Observe(c.Took.Seconds())
	}
}
