package metricsum

import (
	"maps"
	"sync"
	"sync/atomic"

	"github.com/sashlimit/sash/core"
)

// Policies has what an observer keeps for each policy, from its first event until its last limiter is closed. Its map
// is replaced under the lock when a policy is added or removed, so that reading it needs none and allocates nothing.
// The zero value is ready for use.
type Policies[V any] struct {
	mu    sync.Mutex
	known atomic.Pointer[map[string]*kept[V]]
}

// Keeper is an observer that keeps a V for each policy. A policy has one V at a time: Begin is called after End has
// returned.
type Keeper[V any] interface {
	Begin(policy string) *V
	End(v *V)
}

// Of returns what is kept for the policy of an event, which begins when the policy is new. It returns nil if the event
// is late: its limiter is closed.
func (p *Policies[V]) Of(e *core.Event, keeper Keeper[V]) *V {
	k := p.all()[e.Policy]
	switch {
	case k == nil:
		return p.add(e, keeper)
	case !e.Keep(k):
		return nil
	}
	return k.value
}

func (p *Policies[V]) add(e *core.Event, keeper Keeper[V]) *V {
	p.mu.Lock()
	defer p.mu.Unlock()
	k := p.all()[e.Policy]
	isNew := k == nil
	if isNew {
		k = &kept[V]{policy: e.Policy, among: p, keeper: keeper}
	}
	if !e.Keep(k) {
		return nil
	}
	if isNew {
		k.value = keeper.Begin(e.Policy)
		more := make(map[string]*kept[V], len(p.all())+1)
		maps.Copy(more, p.all())
		more[e.Policy] = k
		p.known.Store(&more)
	}
	return k.value
}

// all returns what is kept, by policy. The map must not be changed.
func (p *Policies[V]) all() map[string]*kept[V] {
	if known := p.known.Load(); known != nil {
		return *known
	}
	return nil
}

// All calls yield with what is kept, by policy.
func (p *Policies[V]) All(yield func(string, *V) bool) {
	for policy, k := range p.all() {
		if !yield(policy, k.value) {
			return
		}
	}
}

// Get returns what is kept for a policy, or nil.
func (p *Policies[V]) Get(policy string) *V {
	if k := p.all()[policy]; k != nil {
		return k.value
	}
	return nil
}

// Remove ends what is kept for a policy, whether it has limiters or not.
func (p *Policies[V]) Remove(policy string) {
	if k := p.all()[policy]; k != nil {
		p.remove(k)
	}
}

func (p *Policies[V]) remove(k *kept[V]) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.all()[k.policy] != k {
		return
	}
	less := maps.Clone(p.all())
	delete(less, k.policy)
	p.known.Store(&less)
	k.keeper.End(k.value)
}

// kept is the value of a policy.
type kept[V any] struct {
	value    *V
	policy   string
	among    *Policies[V]
	keeper   Keeper[V]
	limiters atomic.Int64 // that are open
}

// Opened and Closed are for [core.Event.Keep].
func (k *kept[V]) Opened() { k.limiters.Add(1) }

func (k *kept[V]) Closed() {
	if k.limiters.Add(-1) == 0 {
		k.among.remove(k)
	}
}
