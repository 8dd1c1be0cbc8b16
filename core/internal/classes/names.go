package classes

import (
	"maps"
	"sync"
	"sync/atomic"
)

// Names has a value for each name, such as the counters of each policy. Its map is replaced under the lock when a name
// is added or removed, so that reading it needs none and allocates nothing. The zero value is ready for use.
type Names[V any] struct {
	mu    sync.Mutex
	known atomic.Pointer[map[string]*V]
}

// All returns the values of all names. The map must not be changed.
func (n *Names[V]) All() map[string]*V {
	if known := n.known.Load(); known != nil {
		return *known
	}
	return nil
}

// Get returns the value of a name, or nil.
func (n *Names[V]) Get(name string) *V { return n.All()[name] }

// Of returns the value of a name, which create makes when the name is new. If create returns nil, the name stays new.
func (n *Names[V]) Of(name string, create func(name string) *V) *V {
	if v := n.Get(name); v != nil {
		return v
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if v := n.Get(name); v != nil {
		return v
	}
	v := create(name)
	if v == nil {
		return nil
	}
	more := make(map[string]*V, len(n.All())+1)
	maps.Copy(more, n.All())
	more[name] = v
	n.known.Store(&more)
	return v
}

// Remove removes a name that has this value, and then calls end. The name gets no other value before end has returned.
func (n *Names[V]) Remove(name string, v *V, end func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.Get(name) != v {
		return
	}
	less := maps.Clone(n.All())
	delete(less, name)
	n.known.Store(&less)
	end()
}
