package engine

import "sync"

// memo remembers the latest values that were made for keys, as many as its size. A set that was made once is found
// again; another one with the same limits would be right as well.
type memo[K comparable, V any] struct {
	size   int
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

// add remembers a value in place of the one of the same key, or else of the oldest one.
func (m *memo[K, V]) add(k K, v V) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.values == nil {
		m.values = make(map[K]V)
	}
	if _, known := m.values[k]; !known {
		if len(m.order) < m.size {
			m.order = append(m.order, k)
		} else {
			delete(m.values, m.order[m.oldest])
			m.order[m.oldest] = k
			m.oldest = (m.oldest + 1) % m.size
		}
	}
	m.values[k] = v
}

// all returns the values.
func (m *memo[K, V]) all() []V {
	m.mu.RLock()
	defer m.mu.RUnlock()
	all := make([]V, 0, len(m.values))
	for _, k := range m.order {
		all = append(all, m.values[k])
	}
	return all
}
