package metricsum

import (
	"errors"
	"strings"
	"sync"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/event"
)

// The metrics of events, all of which are counters.
var (
	decisions = &Metric{true, "sash_decisions_total", "requests", "{request}",
		"Decisions by policy, outcome and source, including those of Peek.", "outcome source"}
	nearLimit = &Metric{true, "sash_near_limit_total", "near_limit", "{request}",
		"Allowed requests that left less than a fifth of a limit's quota.", ""}
	degraded = &Metric{true, "sash_degraded_decisions_total", "degraded", "{request}",
		"Decisions by the failure policy, because the store did not answer.", ""}
	refunds = &Metric{true, "sash_refunds_total", "refunds", "{refund}", "Refunds by WithRefund.", "result"}
	shadows = &Metric{true, "sash_shadow_decisions_total", "shadow_requests", "{request}",
		"What the policy of WithShadow, or rules with shadow, would have decided.", "outcome"}
	overridden = &Metric{true, "sash_override_decisions_total", "override_requests", "{request}",
		"Decisions under an override, by what it is and by outcome, including those of Peek.", "override outcome"}
	reloads = &Metric{true, "sash_rules_reloads_total", "rules.reloads", "{reload}",
		"Reloads of a rules file.", "result"}
	failures = &Metric{true, "sash_errors_total", "errors", "{request}",
		"Requests that failed or were decided without the store, by class of error.", "class"}
)

// series is a metric of a policy with values of its labels.
type series struct {
	*Metric

	first, second string
}

// beside has what events are counted as that are no decisions.
var beside = map[event.Outcome]series{
	event.ShadowFailed: {shadows, "failed", ""},
	event.Refunded:     {refunds, "ok", ""}, event.RefundFailed: {refunds, "failed", ""},
	event.Reloaded: {reloads, "ok", ""}, event.ReloadFailed: {reloads, "failed", ""},
}

// Events counts the events of limiters by policy. The zero value is ready for use.
type Events struct {
	classes Classes

	mu       sync.Mutex
	policies map[string]map[series]uint64 // what was counted of each, until it is forgotten
}

// Add counts an event, and reports whether it was a decision. It allocates nothing once the policy had one of this kind
// before, except for errors.
func (e *Events) Add(of *core.Event) (decided bool) {
	class := ""
	if of.Err != nil && !errors.Is(of.Err, core.ErrNoKey) && !errors.Is(of.Err, core.ErrForbidden) {
		class = e.classes.Of(of.Err, "callback")
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	n := e.policies[of.Policy]
	if n == nil {
		if e.policies == nil {
			e.policies = make(map[string]map[series]uint64)
		}
		n = map[series]uint64{ // these are reported also before they happen
			{nearLimit, "", ""}: 0, {degraded, "", ""}: 0, {shadows, "allowed", ""}: 0, {shadows, "denied", ""}: 0,
		}
		e.policies[strings.Clone(of.Policy)] = n
	}
	if other, ok := beside[of.Outcome]; ok {
		n[other]++
		return false
	}
	outcome := of.Outcome.String()
	n[series{decisions, outcome, of.Source.String()}]++
	if of.NearLimit() {
		n[series{nearLimit, "", ""}]++
	}
	if of.Decision.Degraded {
		n[series{degraded, "", ""}]++
	}
	if s := of.Shadow; s != nil && s.Allowed {
		n[series{shadows, "allowed", ""}]++
	} else if s != nil {
		n[series{shadows, "denied", ""}]++
	}
	if o := of.Decision.Overridden; o != nil {
		n[series{overridden, o.Kind(), outcome}]++
	}
	if class != "" {
		n[series{failures, class, ""}]++
	}
	return true
}

// Forget forgets the counts of a policy. A later event begins them at 0.
func (e *Events) Forget(policy string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.policies, policy)
}

// Metrics implements [Source].
func (e *Events) Metrics() []Metric {
	return []Metric{*decisions, *nearLimit, *degraded, *refunds, *shadows, *overridden, *reloads, *failures}
}

// Report implements [Source]. What has not happened has no sample, but for some metrics.
func (e *Events) Report(yield func(Sample)) {
	var all []Sample
	e.mu.Lock()
	for policy, counts := range e.policies {
		for s, n := range counts {
			values := []string{s.first, s.second}[:len(strings.Fields(s.Labels))]
			all = append(all, Sample{*s.Metric, policy, values, float64(n)})
		}
	}
	e.mu.Unlock() // since who is told may be slow
	for _, s := range all {
		yield(s)
	}
}
