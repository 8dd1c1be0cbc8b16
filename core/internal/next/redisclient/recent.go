package redisclient

import "sync"

// Recent has the 1,024 values that were made last, by key, such as the plans of a store.
type Recent[K comparable, V any] struct {
	mu     sync.RWMutex
	values map[K]V
	keys   []K // in the order in which they were made, from oldest on
	oldest int
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
	if r.values == nil {
		r.values = make(map[K]V)
	}
	if len(r.keys) < mostRecent {
		r.keys = append(r.keys, key)
	} else {
		delete(r.values, r.keys[r.oldest])
		r.keys[r.oldest] = key
		r.oldest = (r.oldest + 1) % mostRecent
	}
	value = newValue()
	r.values[key] = value
	return value
}
