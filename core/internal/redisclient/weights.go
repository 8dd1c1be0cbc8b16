package redisclient

import (
	"hash/maphash"
	"sync/atomic"
)

// weights is what a sender knows of logs that have weights, which the usual script does not decide: it only tells so,
// and the takes are sent again. So the keys of such logs are marked. The marks go after epoch takes, since logs lose
// their weights when they are empty. If many takes were sent again by then, all takes go to the other script from then
// on, which costs the server some 13 percent more for a log without weights.
type weights struct {
	all   atomic.Bool
	marks atomic.Pointer[marks] // or nil
}

const (
	epoch     = 32768 // takes
	manyFound = epoch / 8
)

// marks are bits by the hashes of keys.
type marks struct {
	bits         [4 * epoch / 64]atomic.Uint64
	takes, found atomic.Int64
}

var seed = maphash.MakeSeed()

func (m *marks) at(key string) (word *atomic.Uint64, bit uint64) {
	hash := maphash.String(seed, key)
	return &m.bits[hash>>6%uint64(len(m.bits))], 1 << (hash & 63)
}

// current counts takes, and returns the marks for these, or nil if there are none.
func (w *weights) current(takes int) *marks {
	m := w.marks.Load()
	if m != nil && m.takes.Add(int64(takes)) >= epoch {
		w.marks.CompareAndSwap(m, nil)
		return nil
	}
	return m
}

// mark marks a key in m, or in new marks if m is nil, and returns these.
func (w *weights) mark(m *marks, key string) *marks {
	if m == nil {
		m = new(marks)
		if other := w.marks.Load(); !w.marks.CompareAndSwap(nil, m) && other != nil {
			m = other
		}
	}
	word, bit := m.at(key)
	word.Or(bit)
	return m
}

// found marks a key whose take was sent again.
func (w *weights) found(m *marks, key string) *marks {
	m = w.mark(m, key)
	if m.found.Add(1) >= manyFound {
		w.all.Store(true)
	}
	return m
}

// known reports whether a log may have weights.
func (w *weights) known(m *marks, key string) bool {
	if m == nil || w.all.Load() {
		return w.all.Load()
	}
	word, bit := m.at(key)
	return word.Load()&bit != 0
}
