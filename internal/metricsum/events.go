package metricsum

import (
	"errors"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/event"
	"github.com/sashlimit/sash/internal/errclass"
)

const (
	outcomes = int(event.Failed) + 1
	// Sources is how many there are of what has decided.
	Sources = int(event.Local) + 1
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
	reloads  = counter("sash_rules_reloads_total", "rules.reloads", "{reload}", "Reloads of a rules file.", "result")
	failures = counter("sash_errors_total", "errors", "{request}",
		"Requests that failed or were decided without the store, by class of error.", "class")

	// EventMetrics are those of [Events].
	EventMetrics = []*Metric{decisions, nearLimit, degraded, refunds, shadows, reloads, failures}
)

// What is counted beside decisions and errors.
const (
	isNear = iota
	isDegraded
	shadowAllowed
	shadowDenied
	shadowFailed
	refunded
	refundFailed
	reloaded
	reloadFailed
	numOthers
)

var others = [numOthers]struct {
	*Metric

	labels   []string
	fromZero bool // it is reported before it happens
}{
	isNear:        {nearLimit, nil, true},
	isDegraded:    {degraded, nil, true},
	shadowAllowed: {shadows, []string{"allowed"}, true},
	shadowDenied:  {shadows, []string{"denied"}, true},
	shadowFailed:  {shadows, []string{"failed"}, false},
	refunded:      {refunds, []string{"ok"}, false},
	refundFailed:  {refunds, []string{"failed"}, false},
	reloaded:      {reloads, []string{"ok"}, false},
	reloadFailed:  {reloads, []string{"failed"}, false},
}

// byOutcome has what is counted of events that are no decisions.
var byOutcome = map[event.Outcome]int{
	event.ShadowFailed: shadowFailed, event.Refunded: refunded, event.RefundFailed: refundFailed,
	event.Reloaded: reloaded, event.ReloadFailed: reloadFailed,
}

// Events counts the events of limiters by policy. The zero value is ready for use.
type Events struct {
	policies Policies[counts]
	classes  errclass.Set
}

// counts are those of a policy.
type counts struct {
	began     time.Time
	decisions [outcomes][Sources]atomic.Uint64
	others    [numOthers]atomic.Uint64

	mu       sync.Mutex
	failures map[string]uint64 // by class of error
}

// Begin implements [Keeper].
func (*Events) Begin(string) *counts { //nolint:revive // only this package keeps them
	return &counts{began: time.Now(), failures: make(map[string]uint64)}
}

// End implements [Keeper].
func (*Events) End(*counts) {}

// Add counts an event, unless it is late. It returns the source of a decision, and reports whether it was one that was
// counted. It allocates nothing once the policy had an event before, except for errors.
func (e *Events) Add(of *core.Event) (source int, decided bool) {
	c := e.policies.Of(of, e)
	if c == nil {
		return 0, false
	}
	if !of.Outcome.IsDecision() {
		if i, known := byOutcome[of.Outcome]; known {
			c.others[i].Add(1)
		}
		return 0, false
	}
	source = min(int(of.Source), Sources-1)
	c.decisions[of.Outcome][source].Add(1)
	if of.NearLimit() {
		c.others[isNear].Add(1)
	}
	if of.Decision.Degraded {
		c.others[isDegraded].Add(1)
	}
	switch {
	case of.Shadow == nil:
	case of.Shadow.Allowed:
		c.others[shadowAllowed].Add(1)
	default:
		c.others[shadowDenied].Add(1)
	}
	if of.Err != nil && !errors.Is(of.Err, core.ErrNoKey) && !errors.Is(of.Err, core.ErrForbidden) {
		c.mu.Lock()
		c.failures[e.classes.Of(of.Err)]++
		c.mu.Unlock()
	}
	return source, true
}

// Report calls yield with the value of each metric that has happened, and with 0 for some that have not.
func (e *Events) Report(yield func(Sample)) {
	for policy, c := range e.policies.All() {
		sample := func(m *Metric, n uint64, labels ...string) {
			yield(Sample{m, policy, labels, float64(n), c.began})
		}
		for outcome := range c.decisions {
			for source := range c.decisions[outcome] {
				if n := c.decisions[outcome][source].Load(); n > 0 {
					sample(decisions, n, event.Outcome(outcome).String(), event.Source(source).String())
				}
			}
		}
		for i := range others {
			if n := c.others[i].Load(); n > 0 || others[i].fromZero {
				sample(others[i].Metric, n, others[i].labels...)
			}
		}
		c.mu.Lock()
		failed := maps.Clone(c.failures)
		c.mu.Unlock()
		for class, n := range failed {
			sample(failures, n, class)
		}
	}
}
