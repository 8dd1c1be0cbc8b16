package permits

import (
	"context"
	"errors"
	"runtime"
	"sync"
)

// Held is the permits of one decision.
type Held struct {
	Context context.Context //nolint:containedctx // of the request, for those who release the permits when it has ended

	Permits []Permit
	// Deferred says that the permits are not released when the handler ends, because what it has begun holds them still.
	Deferred bool

	set      *Set
	mu       sync.Mutex
	released bool
}

// Release gives the permits back. It does so once, unless it fails: then they are not renewed any more, and it may be
// called again.
func (h *Held) Release(ctx context.Context) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.released {
		return nil
	}
	h.set.mu.Lock()
	for i := range h.Permits {
		h.set.remove(&h.Permits[i])
	}
	h.set.mu.Unlock()
	var err error
	for i := range h.Permits {
		err = errors.Join(err, h.set.logs.Release(ctx, &h.Permits[i]))
	}
	h.released = err == nil
	return err
}

// watch has the permits forgotten when the garbage collector has found that nobody can release them. Until then the set
// refers to them alone. Most permits are released long before, so they cost the garbage collector nothing.
func (h *Held) watch() {
	for i := range h.Permits {
		h.Permits[i].held = nil
	}
	runtime.AddCleanup(h, h.set.forget, h.Permits)
}

// forget notes that nobody can release permits. It must not use the timer, which a testing/synctest bubble may have
// made.
func (s *Set) forget(permits []Permit) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range permits {
		permits[i].forgotten = true
	}
}
