package metricsum

import (
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/event"
)

// The metrics of events, all of which are counters.
const (
	decisions = iota
	nearLimit
	degraded
	refunds
	shadows
	overridden
	reloads
	failures
)

var eventMetrics = []Metric{
	decisions: {true, "sash_decisions_total", "requests", "{request}",
		"Decisions by policy, outcome and source, including those of Peek.", "outcome source"},
	nearLimit: {true, "sash_near_limit_total", "near_limit", "{request}",
		"Allowed requests that left less than a fifth of a limit's quota.", ""},
	degraded: {true, "sash_degraded_decisions_total", "degraded", "{request}",
		"Decisions by the failure policy, because the store did not answer.", ""},
	refunds: {true, "sash_refunds_total", "refunds", "{refund}", "Refunds by WithRefund.", "result"},
	shadows: {true, "sash_shadow_decisions_total", "shadow_requests", "{request}",
		"What the policy of WithShadow, or rules with shadow, would have decided.", "outcome"},
	overridden: {true, "sash_override_decisions_total", "override_requests", "{request}",
		"Decisions under an override, by what it is and by outcome, including those of Peek.", "override outcome"},
	reloads: {true, "sash_rules_reloads_total", "rules.reloads", "{reload}", "Reloads of a rules file.", "result"},
	failures: {true, "sash_errors_total", "errors", "{request}",
		"Requests that failed or were decided without the store, by class of error.", "class"},
}

// series is a metric of a policy with values of its labels.
type series struct {
	metric int
	first  string
	second string
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
	policies map[string]*counts
}

// counts are those of a policy, until it is forgotten.
type counts struct {
	began time.Time
	n     map[series]uint64
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
	c := e.policies[of.Policy]
	if c == nil {
		if e.policies == nil {
			e.policies = make(map[string]*counts)
		}
		c = &counts{time.Now(), map[series]uint64{ // these are reported also before they happen
			{nearLimit, "", ""}: 0, {degraded, "", ""}: 0, {shadows, "allowed", ""}: 0, {shadows, "denied", ""}: 0,
		}}
		e.policies[strings.Clone(of.Policy)] = c
	}
	if other, ok := beside[of.Outcome]; ok {
		c.n[other]++
		return false
	}
	outcome := of.Outcome.String()
	c.n[series{decisions, outcome, of.Source.String()}]++
	if of.NearLimit() {
		c.n[series{metric: nearLimit}]++
	}
	if of.Decision.Degraded {
		c.n[series{metric: degraded}]++
	}
	if s := of.Shadow; s != nil && s.Allowed {
		c.n[series{metric: shadows, first: "allowed"}]++
	} else if s != nil {
		c.n[series{metric: shadows, first: "denied"}]++
	}
	if o := of.Decision.Overridden; o != nil {
		c.n[series{overridden, o.Kind(), outcome}]++
	}
	if class != "" {
		c.n[series{metric: failures, first: class}]++
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
func (e *Events) Metrics() []Metric { return eventMetrics }

// Report implements [Source]. What has not happened has no sample, but for some metrics.
func (e *Events) Report(yield func(Sample)) {
	var all []Sample
	e.mu.Lock()
	for policy, c := range e.policies {
		for s, n := range c.n {
			m := eventMetrics[s.metric]
			values := []string{s.first, s.second}[:len(strings.Fields(m.Labels))]
			all = append(all, Sample{m, policy, values, float64(n), c.began})
		}
	}
	e.mu.Unlock() // since who is told may be slow
	for _, s := range all {
		yield(s)
	}
}
