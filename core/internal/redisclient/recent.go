package redisclient

import "sync"

// Recent has the 1,024 values that were made last, by key, such as the plans of a store.
type Recent[K comparable, V any] struct {
	mu     sync.RWMutex
	values map[K]V
	keys   []K // the oldest first
}

const mostRecent = 1024

// Get returns the value of a key, which it makes if there is none.
func (r *Recent[K, V]) Get(key K, newValue func() V) V {
	r.mu.RLock()
	value, ok := r.values[key]
	r.mu.RUnlock()
	if ok {
		return value
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if value, ok = r.values[key]; ok {
		return value
	}
	if len(r.keys) == mostRecent {
		delete(r.values, r.keys[0])
		r.keys = r.keys[1:]
	}
	if r.values == nil {
		r.values = make(map[K]V)
	}
	value = newValue()
	r.values[key], r.keys = value, append(r.keys, key)
	return value
}
