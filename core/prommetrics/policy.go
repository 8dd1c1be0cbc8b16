package prommetrics

import (
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/sashlimit/sash/internal/metricsum"
)

// policy has the counters of a policy.
type policy struct {
	decisions [metricsum.Outcomes][metricsum.Sources]atomic.Pointer[counter]

	near, degraded, shadowAllowed, shadowDenied prometheus.Counter

	name     string
	mu       sync.Mutex
	counters map[series]prometheus.Counter // all of them; nil at the end
}

type counter struct{ prometheus.Counter }

// series names a counter of a policy: its labels beside that of the policy, or empty texts.
type series struct {
	of            *prometheus.CounterVec
	first, second string
}

func (s series) labels(policy string) []string {
	switch {
	case s.first == "":
		return []string{policy}
	case s.second == "":
		return []string{policy, s.first}
	}
	return []string{policy, s.first, s.second}
}

// counter returns a counter of the policy. After the end it is one that nobody reads.
func (p *policy) counter(of *prometheus.CounterVec, first, second string) prometheus.Counter {
	s := series{of, first, second}
	p.mu.Lock()
	defer p.mu.Unlock()
	c := p.counters[s]
	switch {
	case c != nil:
	case p.counters == nil:
		c = prometheus.NewCounter(prometheus.CounterOpts{})
	default:
		c = of.WithLabelValues(s.labels(p.name)...)
		p.counters[s] = c
	}
	return c
}

// end deletes the counters.
func (p *policy) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for s := range p.counters {
		s.of.DeleteLabelValues(s.labels(p.name)...)
	}
	p.counters = nil
}
