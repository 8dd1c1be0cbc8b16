package metricsum

import (
	"maps"
	"sync"
)

// Policies has what an observer keeps for each policy, from its first event until it is forgotten. The zero value is
// ready for use.
type Policies[V any] struct {
	mu    sync.RWMutex
	known map[string]*V
}

// Of returns what is kept for a policy. If it is new, begin makes it.
func (p *Policies[V]) Of(policy string, begin func(policy string) *V) *V {
	if v := p.Get(policy); v != nil {
		return v
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	v := p.known[policy]
	if v == nil {
		if p.known == nil {
			p.known = make(map[string]*V)
		}
		v = begin(policy)
		p.known[policy] = v
	}
	return v
}

// Get returns what is kept for a policy, or nil.
func (p *Policies[V]) Get(policy string) *V {
	p.mu.RLock()
	defer p.mu.RUnlock()
	return p.known[policy]
}

// All returns what is kept, by policy.
func (p *Policies[V]) All() map[string]*V {
	p.mu.RLock()
	defer p.mu.RUnlock()
	return maps.Clone(p.known)
}

// Forget forgets a policy and returns what was kept, or nil.
func (p *Policies[V]) Forget(policy string) *V {
	p.mu.Lock()
	defer p.mu.Unlock()
	v := p.known[policy]
	delete(p.known, policy)
	return v
}
