package prommetrics

import (
	"context"
	"errors"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/event"
	"github.com/sashlimit/sash/core/internal/classes"
)

// Observer registers the metrics of decisions and returns a function for [core.WithObserver], which any number of
// limiters may have. It may be called several times with one registerer: the metrics are then the same. It panics if
// they cannot be registered.
//
// It allocates nothing once a policy has had the outcome before, except for errors.
func Observer(r prometheus.Registerer, opts ...Option) func(context.Context, core.Event) {
	c := configure(opts)
	o := &observer{
		decisions: counters(r, "sash_decisions_total",
			"Decisions by policy, outcome and what has decided. Calls of Peek are among them.",
			"policy", "outcome", "source"),
		near: counters(r, "sash_near_limit_total",
			"Requests that were allowed and have left less than a fifth of a limit's quota.", "policy"),
		degraded: counters(r, "sash_degraded_decisions_total",
			"Decisions of the failure policy, because the store did not answer.", "policy"),
		durations: histograms(r, c, "sash_decision_duration_seconds",
			"Time until the decision; for Wait, including the wait.", "source"),
		refunds: counters(r, "sash_refunds_total", "Refunds of WithRefund.", "policy", "result"),
		shadows: counters(r, "sash_shadow_decisions_total",
			"What the policy of WithShadow, or rules with shadow, would have decided.", "policy", "outcome"),
		reloads: counters(r, "sash_rules_reloads_total", "Reloads of a file of rules.", "policy", "result"),
		errs: counters(r, "sash_errors_total",
			"Requests without a decision, or decided without the store, by the class of the error.", "policy", "class"),
	}
	for s := range o.bySource {
		o.bySource[s] = o.durations.WithLabelValues(event.Source(s).String())
	}
	return o.observe
}

const (
	outcomes = int(event.Failed) + 1 // of decisions
	sources  = int(event.Local) + 1
)

type observer struct {
	decisions, near, degraded, refunds, shadows, reloads, errs *prometheus.CounterVec

	durations *prometheus.HistogramVec
	bySource  [sources]prometheus.Observer
	classes   classes.Set

	policies classes.Names[policy]
}

// policy has the counters of a policy.
type policy struct {
	decisions [outcomes][sources]atomic.Pointer[counter]

	near, degraded, shadowAllowed, shadowDenied prometheus.Counter
}

type counter struct{ prometheus.Counter }

// policy returns the counters of a policy, which are made when it is new.
func (o *observer) policy(name string) *policy { return o.policies.Of(name, o.newPolicy) }

func (o *observer) newPolicy(name string) *policy {
	return &policy{
		near: o.near.WithLabelValues(name), degraded: o.degraded.WithLabelValues(name),
		shadowAllowed: o.shadows.WithLabelValues(name, "allowed"),
		shadowDenied:  o.shadows.WithLabelValues(name, "denied"),
	}
}

func (o *observer) observe(_ context.Context, e core.Event) {
	switch e.Outcome {
	case event.Refunded:
		o.refunds.WithLabelValues(e.Policy, "ok").Inc()
		return
	case event.RefundFailed:
		o.refunds.WithLabelValues(e.Policy, "failed").Inc()
		return
	case event.ShadowFailed:
		o.shadows.WithLabelValues(e.Policy, "failed").Inc()
		return
	case event.Reloaded:
		o.reloads.WithLabelValues(e.Policy, "ok").Inc()
		return
	case event.ReloadFailed:
		o.reloads.WithLabelValues(e.Policy, "failed").Inc()
		return
	case event.Allowed, event.Denied, event.Banned, event.Forbidden, event.Listed, event.Skipped, event.NoKey,
		event.Failed:
		o.decision(&e)
	}
}

func (o *observer) decision(e *core.Event) {
	p := o.policy(e.Policy)
	outcome, source := int(e.Outcome), min(int(e.Source), sources-1)
	at := &p.decisions[outcome][source]
	c := at.Load()
	if c == nil {
		c = &counter{o.decisions.WithLabelValues(e.Policy, e.Outcome.String(), event.Source(source).String())}
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
		o.errs.WithLabelValues(e.Policy, o.classes.Of(e.Err)).Inc()
	}
}

// StoreObserver registers a histogram of calls to stores and returns a function for [core.WithStoreObserver]. It may be
// called several times with one registerer.
func StoreObserver(r prometheus.Registerer, opts ...Option) func(context.Context, event.StoreCall) {
	calls := histograms(r, configure(opts), "sash_store_call_duration_seconds",
		"Time that calls to the store took, by what it was asked and the class of its error.", "operation", "class")
	known := new(classes.Set)
	return func(_ context.Context, c event.StoreCall) {
		calls.WithLabelValues(c.Operation.String(), known.OfStore(c.Err)).Observe(c.Took.Seconds())
	}
}
