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

	Slots []Slot
	// Deferred says that the slots are not released when the handler ends, because what it has begun holds them still.
	Deferred bool

	set      *Set
	mu       sync.Mutex
	released bool
}

// Release gives the slots back. It does so once, unless it fails: then they are not renewed any more, and it may be
// called again.
func (h *Held) Release(ctx context.Context) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.released {
		return nil
	}
	h.set.mu.Lock()
	for i := range h.Slots {
		h.set.remove(&h.Slots[i])
	}
	h.set.mu.Unlock()
	var err error
	for i := range h.Slots {
		err = errors.Join(err, h.set.logs.Release(ctx, &h.Slots[i]))
	}
	h.released = err == nil
	return err
}

// watch has the slots forgotten when the garbage collector has found that nobody can release them. Until then the set
// refers to them alone. Most slots are released long before, so they cost the garbage collector nothing.
func (h *Held) watch() {
	for i := range h.Slots {
		h.Slots[i].held = nil
	}
	runtime.AddCleanup(h, h.set.forget, h.Slots)
}

// forget notes that nobody can release slots. It must not use the timer, which a testing/synctest bubble may have made.
func (s *Set) forget(slots []Slot) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range slots {
		slots[i].forgotten = true
	}
}
