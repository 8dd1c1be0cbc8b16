// Package metricsum has the metrics of limiters for packages that export them: it counts events by policy, adds up what
// limiters hold, and names and describes each metric.
package metricsum

import (
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/sashlimit/sash/core"
)

// Metric is a number that exporters have of each policy.
type Metric struct {
	Counter    bool     // it never decreases
	Prometheus string   // its name
	OTel       string   // its name
	Unit       string   // of OTel
	Help       string   // what it is
	Labels     []string // beside the policy, as Prometheus names them
}

// Sample is a value of a metric, in Prometheus' unit.
type Sample struct {
	*Metric

	Policy string
	Labels []string // of the metric's labels
	Value  float64
	Began  time.Time // when it was 0, if it is of events
}

// What histograms are, which exporters make themselves.
const (
	DecisionHelp  = "Time to reach a decision; for Wait, including the wait."
	StoreCallHelp = "Duration of calls to the store, by operation and class of error."
)

// Buckets are the upper bounds of histograms, in seconds.
var Buckets = []float64{1e-6, 1e-5, 1e-4, 2.5e-4, 5e-4, 1e-3, 2.5e-3, 5e-3, 1e-2, 2.5e-2, 5e-2, 0.1, 0.25, 1}

func counter(prometheus, otel, unit, help string, labels ...string) *Metric {
	return &Metric{true, prometheus, otel, unit, help, labels}
}

func gauge(prometheus, otel, unit, help string, labels ...string) *Metric {
	return &Metric{false, prometheus, otel, unit, help, labels}
}

// Limiters are those whose sums are reported, until all of a policy are closed.
type Limiters struct {
	mu  sync.Mutex
	all []*core.Limiter
}

// NewLimiters returns limiters, each once.
func NewLimiters(limiters []*core.Limiter) *Limiters {
	l := new(Limiters)
	for _, one := range limiters {
		if one != nil && !slices.Contains(l.all, one) {
			l.all = append(l.all, one)
		}
	}
	return l
}

// Sums returns the sums of the limiters of each policy, in the order of the first of each. Policies whose limiters are
// all closed are left out, and their limiters are dropped. Until then a closed limiter stays in the sum, so that
// counters do not decrease. What is of a store is in the sum of the first limiter that uses it, and nowhere else.
func (l *Limiters) Sums() (all []*core.Stats) {
	byPolicy := make(map[string]*core.Stats)
	stores := make(map[core.Store]bool)
	for _, s := range l.stats() {
		if reflect.TypeOf(s.Store).Comparable() {
			if stores[s.Store] {
				s.Keys, s.MaxKeys, s.Bytes, s.Shared = 0, 0, 0, 0
			}
			stores[s.Store] = true
		}
		if sum := byPolicy[s.Policy]; sum != nil {
			add(sum, s)
			continue
		}
		byPolicy[s.Policy] = s
		all = append(all, s)
	}
	return all
}

// stats returns what each limiter holds whose policy has one that is not closed, and drops the others.
func (l *Limiters) stats() (all []*core.Stats) {
	l.mu.Lock()
	defer l.mu.Unlock()
	open := make(map[string]bool)
	for _, one := range l.all {
		s := one.Stats()
		all, open[s.Policy] = append(all, &s), open[s.Policy] || !s.Closed
	}
	var kept []*core.Limiter
	for i, s := range all {
		if open[s.Policy] {
			kept = append(kept, l.all[i])
		}
	}
	l.all = kept
	return slices.DeleteFunc(all, func(s *core.Stats) bool { return !open[s.Policy] })
}

func add(sum, s *core.Stats) {
	sum.InFlight, sum.Keys, sum.MaxKeys = sum.InFlight+s.InFlight, sum.Keys+s.Keys, sum.MaxKeys+s.MaxKeys
	sum.Overrides = max(sum.Overrides, s.Overrides) // limiters of one policy have the same
	sum.Bytes, sum.Shared = sum.Bytes+s.Bytes, sum.Shared+s.Shared
	if sum.Breaker == "" || sum.Breaker == "closed" && s.Breaker != "" || s.Breaker == "open" {
		sum.Breaker = s.Breaker
	}
	sum.Outages, sum.Failures, sum.Denials = sum.Outages+s.Outages, sum.Failures+s.Failures, sum.Denials+s.Denials
	sum.Backlog, sum.Replayed, sum.Lost = sum.Backlog+s.Backlog, sum.Replayed+s.Replayed, sum.Lost+s.Lost
	sum.Leases, sum.Booked = sum.Leases+s.Leases, sum.Booked+s.Booked
}
