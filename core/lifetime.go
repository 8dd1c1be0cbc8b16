package core

import (
	"slices"
	"sync"
	"sync/atomic"

	"github.com/sashlimit/sash/core/adapter"
)

// lifetime is what ends when a limiter is closed. The copies of a limiter share it.
type lifetime struct {
	unshare func() // see setup.Sharers; or nil

	mu     sync.Mutex // guards that the following are set
	closed atomic.Bool
	few    atomic.Pointer[[mostOfFew]kept] // the first of kept, which are found faster
	kept   sync.Map                        // what Event.Keep was given
}

const mostOfFew = 4

// kept is what an observer keeps for a policy.
type kept interface {
	Opened()
	Closed()
}

func (t *lifetime) keep(k kept) (open bool) {
	if t.closed.Load() {
		return false
	}
	if few := t.few.Load(); few != nil {
		for _, known := range few { // slices.Contains takes twice as long
			if known == k {
				return true
			}
		}
	}
	if _, known := t.kept.Load(k); known {
		return true
	}
	return t.begin(k)
}

func (t *lifetime) begin(k kept) (open bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed.Load() {
		return false
	}
	if _, known := t.kept.LoadOrStore(k, nil); known {
		return true
	}
	few := new([mostOfFew]kept)
	if before := t.few.Load(); before != nil {
		*few = *before
	}
	if i := slices.Index(few[:], nil); i >= 0 {
		few[i] = k
		t.few.Store(few)
	}
	k.Opened()
	return true
}

// close is called when a limiter has been closed.
func (t *lifetime) close() {
	t.mu.Lock()
	again := t.closed.Swap(true)
	t.mu.Unlock()
	if again {
		return
	}
	if t.unshare != nil {
		t.unshare()
	}
	for k := range t.kept.Range {
		adapter.Guard(func() error { //nolint:errcheck // documented: a panic is dropped
			k.(kept).Closed() //nolint:forcetypeassert // nothing else is stored
			return nil
		})
	}
	t.kept.Clear()
	t.few.Store(nil)
}
