package engine

import (
	"cmp"
	"maps"
	"sync"
)

// mostRemembered is the size of a memo that has none. What requests choose may be any number of things.
const mostRemembered = 4096

// memo remembers the latest values that were made for keys, as many as its size.
type memo[K comparable, V any] struct {
	size   int // or 0: mostRemembered
	mu     sync.RWMutex
	values map[K]V
	order  []K // in which they were added
	oldest int // index in order, once it is full
}

func (m *memo[K, V]) find(k K) (v V, ok bool) {
	m.mu.RLock()
	v, ok = m.values[k]
	m.mu.RUnlock()
	return v, ok
}

// get returns the value for a key, which it makes if there is none.
func (m *memo[K, V]) get(k K, made func() V) V {
	if known, ok := m.find(k); ok {
		return known
	}
	v := made()
	m.mu.Lock()
	defer m.mu.Unlock()
	if known, ok := m.values[k]; ok { // meanwhile
		return known
	}
	m.put(k, v)
	return v
}

// replace remembers a value in place of the one for the key.
func (m *memo[K, V]) replace(k K, v V) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, ok := m.values[k]; ok {
		m.values[k] = v
		return
	}
	m.put(k, v)
}

// put adds a value for a new key, and forgets the oldest one if there are too many.
func (m *memo[K, V]) put(k K, v V) {
	if m.values == nil {
		m.values = make(map[K]V)
	}
	size := cmp.Or(m.size, mostRemembered)
	if len(m.order) < size {
		m.order = append(m.order, k)
	} else {
		delete(m.values, m.order[m.oldest])
		m.order[m.oldest] = k
		m.oldest = (m.oldest + 1) % size
	}
	m.values[k] = v
}

// all returns the values by their keys.
func (m *memo[K, V]) all() map[K]V {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return maps.Clone(m.values)
}
