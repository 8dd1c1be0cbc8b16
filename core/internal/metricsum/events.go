package metricsum

import (
	"errors"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/event"
)

const (
	outcomes = int(event.ReloadFailed) + 1
	// Sources is how many there are of what has decided.
	Sources = int(event.Lease) + 1
)

// The metrics of events.
var (
	decisions = counter("sash_decisions_total", "requests", "{request}",
		"Decisions by policy, outcome and source, including those of Peek.", "outcome", "source")
	nearLimit = counter("sash_near_limit_total", "near_limit", "{request}",
		"Allowed requests that left less than a fifth of a limit's quota.")
	degraded = counter("sash_degraded_decisions_total", "degraded", "{request}",
		"Decisions by the failure policy, because the store did not answer.")
	refunds = counter("sash_refunds_total", "refunds", "{refund}", "Refunds by WithRefund.", "result")
	shadows = counter("sash_shadow_decisions_total", "shadow_requests", "{request}",
		"What the policy of WithShadow, or rules with shadow, would have decided.", "outcome")
	overridden = counter("sash_override_decisions_total", "override_requests", "{request}",
		"Decisions under an override, by what it is and by outcome, including those of Peek.", "override", "outcome")
	reloads  = counter("sash_rules_reloads_total", "rules.reloads", "{reload}", "Reloads of a rules file.", "result")
	failures = counter("sash_errors_total", "errors", "{request}",
		"Requests that failed or were decided without the store, by class of error.", "class")

	// EventMetrics are those of [Events].
	EventMetrics = []*Metric{decisions, nearLimit, degraded, refunds, shadows, overridden, reloads, failures}
)

// What is counted of decisions beside their outcome.
const (
	Near = iota
	Degraded
	ShadowAllowed
	ShadowDenied
	marks
)

// byOutcome has what is reported beside decisions, and its label.
var byOutcome = map[event.Outcome]struct {
	*Metric

	label string
}{
	event.ShadowFailed: {shadows, "failed"},
	event.Refunded:     {refunds, "ok"}, event.RefundFailed: {refunds, "failed"},
	event.Reloaded: {reloads, "ok"}, event.ReloadFailed: {reloads, "failed"},
}

// Counts are those of the events of a policy. The zero value is ready for use.
type Counts struct {
	events [outcomes][Sources]atomic.Uint64
	marks  [marks]atomic.Uint64

	overridden [len(overrideKinds)][outcomes]atomic.Uint64
}

// overrideKinds are what [core.Override.Kind] returns.
var overrideKinds = [...]string{"limits", "denied", "unlimited"}

// Add counts an event. It returns the source of a decision, and reports whether it was one.
func (c *Counts) Add(e *core.Event) (source int, decided bool) {
	if int(e.Outcome) >= outcomes {
		return 0, false
	}
	source = min(int(e.Source), Sources-1)
	c.events[e.Outcome][source].Add(1)
	if !e.Outcome.IsDecision() {
		return 0, false
	}
	for mark, is := range [marks]bool{
		Near: e.NearLimit(), Degraded: e.Decision.Degraded,
		ShadowAllowed: e.Shadow != nil && e.Shadow.Allowed, ShadowDenied: e.Shadow != nil && !e.Shadow.Allowed,
	} {
		if is {
			c.marks[mark].Add(1)
		}
	}
	if o := e.Decision.Overridden; o != nil {
		c.overridden[slices.Index(overrideKinds[:], o.Kind())][e.Outcome].Add(1)
	}
	return source, true
}

// Of returns how many events had one of some outcomes.
func (c *Counts) Of(outcomes ...event.Outcome) (n uint64) {
	for _, o := range outcomes {
		for source := range c.events[o] {
			n += c.events[o][source].Load()
		}
	}
	return n
}

// Marked returns how many decisions had a mark, such as [Near].
func (c *Counts) Marked(mark int) uint64 { return c.marks[mark].Load() }

// Events counts the events of limiters by policy. The zero value is ready for use.
type Events struct {
	policies Policies[counts]
	classes  Classes
}

func newCounts(string) *counts { return &counts{began: time.Now(), failures: make(map[string]uint64)} }

// counts are those of a policy, with its errors.
type counts struct {
	Counts

	began time.Time

	mu       sync.Mutex
	failures map[string]uint64 // by class of error
}

// Forget forgets the counts of a policy. A later event begins them at 0.
func (e *Events) Forget(policy string) { e.policies.Forget(policy) }

// Add counts an event. It returns the source of a decision, and reports whether it was one. It allocates nothing once
// the policy had an event before, except for errors.
func (e *Events) Add(of *core.Event) (source int, decided bool) {
	c := e.policies.Of(of.Policy, newCounts)
	source, decided = c.Add(of)
	if decided && of.Err != nil && !errors.Is(of.Err, core.ErrNoKey) && !errors.Is(of.Err, core.ErrForbidden) {
		c.mu.Lock()
		c.failures[e.classes.Of(of.Err)]++
		c.mu.Unlock()
	}
	return source, decided
}

// Report calls yield with the value of each metric that has happened, and with 0 for some that have not.
func (e *Events) Report(yield func(Sample)) {
	for policy, c := range e.policies.All() {
		sample := func(m *Metric, n uint64, labels ...string) {
			yield(Sample{m, policy, labels, float64(n), c.began})
		}
		for o := range event.Outcome(outcomes) {
			other, isOther := byOutcome[o]
			for source := range c.events[o] {
				if n := c.events[o][source].Load(); n > 0 && !isOther {
					sample(decisions, n, o.String(), event.Source(source).String())
				}
			}
			if n := c.Of(o); n > 0 && isOther {
				sample(other.Metric, n, other.label)
			}
			for kind := range c.overridden {
				if n := c.overridden[kind][o].Load(); n > 0 {
					sample(overridden, n, overrideKinds[kind], o.String())
				}
			}
		}
		sample(nearLimit, c.Marked(Near)) // these also before they happen
		sample(degraded, c.Marked(Degraded))
		sample(shadows, c.Marked(ShadowAllowed), "allowed")
		sample(shadows, c.Marked(ShadowDenied), "denied")
		c.mu.Lock()
		failed := maps.Clone(c.failures)
		c.mu.Unlock()
		for class, n := range failed {
			sample(failures, n, class)
		}
	}
}
