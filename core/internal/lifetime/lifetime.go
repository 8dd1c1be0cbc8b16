// Package lifetime ends with a limiter what observers keep for it.
package lifetime

import (
	"sync"
	"sync/atomic"

	"github.com/sashlimit/sash/core/adapter"
)

// Lifetime is what ends when a limiter is closed.
type Lifetime struct {
	Unshare func() // is called by Close, unless it is nil

	mu     sync.Mutex // guards that the following are set
	closed atomic.Bool
	kept   sync.Map // what Keep was given
}

// Kept is what an observer keeps for a policy.
type Kept interface {
	Opened()
	Closed()
}

// Keep calls k.Opened unless it was given k before, and has Close call k.Closed. It reports whether the limiter is
// open.
func (t *Lifetime) Keep(k Kept) (open bool) {
	if t.closed.Load() {
		return false
	}
	if _, known := t.kept.Load(k); known {
		return true
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed.Load() {
		return false
	}
	if _, known := t.kept.LoadOrStore(k, nil); !known {
		k.Opened()
	}
	return true
}

// Closed reports whether Close was called.
func (t *Lifetime) Closed() bool { return t.closed.Load() }

// Close is called when a limiter has been closed.
func (t *Lifetime) Close() {
	t.mu.Lock()
	again := t.closed.Swap(true)
	t.mu.Unlock()
	if again {
		return
	}
	if t.Unshare != nil {
		t.Unshare()
	}
	for k := range t.kept.Range {
		adapter.Guard(func() error { //nolint:errcheck // documented: a panic is dropped
			k.(Kept).Closed() //nolint:forcetypeassert // nothing else is stored
			return nil
		})
	}
	t.kept.Clear()
}
