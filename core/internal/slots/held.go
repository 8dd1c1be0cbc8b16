package slots

import (
	"context"
	"errors"
	"runtime"
	"sync"
)

// Held is the slots of one decision.
type Held struct {
	Context context.Context //nolint:containedctx // of the request, for those who release the slots when it has ended

	set   *Set
	slots []Slot

	later bool

	mu       sync.Mutex
	released bool
}

// Slots returns the slots.
func (h *Held) Slots() []Slot { return h.slots }

// Release gives the slots back. It does so once, unless it fails: then they are not renewed any more, and it may be
// called again.
func (h *Held) Release(ctx context.Context) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.released {
		return nil
	}
	h.set.mu.Lock()
	for i := range h.slots {
		h.set.remove(&h.slots[i])
	}
	h.set.mu.Unlock()
	var err error
	for i := range h.slots {
		if failed := h.set.logs.Release(ctx, &h.slots[i]); failed != nil {
			err = errors.Join(err, failed)
		}
	}
	h.released = err == nil
	return err
}

// Defer notes that the slots are not released when the handler ends, because what it has begun holds them still.
func (h *Held) Defer() { h.later = true }

// Deferred reports whether Defer was called.
func (h *Held) Deferred() bool { return h.later }

// watch has the slots forgotten when the garbage collector has found that nobody can release them. Until then the set
// refers to them alone. Most slots are released long before, so they cost the garbage collector nothing.
func (h *Held) watch() {
	for i := range h.slots {
		h.slots[i].held = nil
	}
	runtime.AddCleanup(h, h.set.forget, h.slots)
}

// forget notes that nobody can release slots. It must not use the timer, which a testing/synctest bubble may have made.
func (s *Set) forget(slots []Slot) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range slots {
		slots[i].forgotten = true
	}
}
