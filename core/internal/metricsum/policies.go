package metricsum

import (
	"maps"
	"sync"
	"sync/atomic"
)

// Policies has what an observer keeps for each policy, from its first event until it is forgotten. Its map is replaced
// under the lock when a policy is added or removed, so that reading it needs none and allocates nothing. The zero value
// is ready for use.
type Policies[V any] struct {
	mu    sync.Mutex
	known atomic.Pointer[map[string]*V]
}

// Of returns what is kept for a policy. If it is new, begin makes it.
func (p *Policies[V]) Of(policy string, begin func(policy string) *V) *V {
	if v := p.all()[policy]; v != nil {
		return v
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if v := p.all()[policy]; v != nil {
		return v
	}
	more := make(map[string]*V, len(p.all())+1)
	maps.Copy(more, p.all())
	v := begin(policy)
	more[policy] = v
	p.known.Store(&more)
	return v
}

// all returns what is kept, by policy. The map must not be changed.
func (p *Policies[V]) all() map[string]*V {
	if known := p.known.Load(); known != nil {
		return *known
	}
	return nil
}

// All calls yield with what is kept, by policy.
func (p *Policies[V]) All(yield func(string, *V) bool) {
	for policy, v := range p.all() {
		if !yield(policy, v) {
			return
		}
	}
}

// Get returns what is kept for a policy, or nil.
func (p *Policies[V]) Get(policy string) *V { return p.all()[policy] }

// Forget forgets a policy and returns what was kept, or nil.
func (p *Policies[V]) Forget(policy string) *V {
	p.mu.Lock()
	defer p.mu.Unlock()
	v := p.all()[policy]
	if v != nil {
		less := maps.Clone(p.all())
		delete(less, policy)
		p.known.Store(&less)
	}
	return v
}
