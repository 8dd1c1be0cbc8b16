package classes

import (
	"maps"
	"sync"
	"sync/atomic"
)

// Names has a value for each name, such as the counters of each policy. Its map is replaced under the lock when a name
// is added, so that reading it needs none and allocates nothing. The zero value is ready for use.
type Names[V any] struct {
	mu    sync.Mutex
	known atomic.Pointer[map[string]*V]
}

// Of returns the value of a name, which create makes when the name is new.
func (n *Names[V]) Of(name string, create func(name string) *V) *V {
	if known := n.known.Load(); known != nil {
		if v := (*known)[name]; v != nil {
			return v
		}
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	more := make(map[string]*V)
	if known := n.known.Load(); known != nil {
		if v := (*known)[name]; v != nil {
			return v
		}
		more = maps.Clone(*known)
	}
	v := create(name)
	more[name] = v
	n.known.Store(&more)
	return v
}
