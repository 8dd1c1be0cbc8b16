// Package slots knows the slots that requests in flight hold, and renews them until they are released.
//
// One timer serves all slots of a [Set]. It is there only while slots are held.
package slots

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/sashlimit/sash/core/store"
)

// Logs are the logs that the slots are in.
type Logs interface {
	// Renew renews slots. It returns soon, and is called again if it fails.
	Renew(r *store.Renewal)

	// Release gives a slot back. Degraded tells that it was taken without the store.
	Release(ctx context.Context, s *Slot, degraded bool) error
}

// Slot is the entry of a take in a log of slots.
type Slot struct {
	Key    store.Key // which outlives the request
	ID     uint64
	Plan   *store.Plan
	Others bool // requests of other keys may wait for it
}

// lease returns the shortest window of the slot's limits.
func (s *Slot) lease() time.Duration {
	lease := s.Plan.Keep
	for i := range s.Plan.Limits {
		lease = min(lease, s.Plan.Limits[i].Window)
	}
	return lease
}

const (
	renewals  = 3 // of a slot within its lease
	renewedBy = 8 // goroutines
)

// Set is the slots that are held. It is safe for concurrent use.
type Set struct {
	logs Logs

	mu       sync.Mutex
	held     map[logKey]*log
	timer    *time.Timer // nil while no slot is held
	timers   int         // started so far
	period   time.Duration
	renewing bool
	closed   bool
	work     sync.WaitGroup
}

// logKey is a comparable store.Key.
type logKey struct {
	namespace *store.Namespace
	identity  store.Identity
}

func logKeyOf(k *store.Key) logKey { return logKey{k.Namespace, k.Identity} }

// log is the slots that are held in one log.
type log struct {
	key         store.Key
	ids         []uint64
	fresh       []uint64 // those of ids that Merge was not told
	lease, keep time.Duration
}

// New makes an empty set of slots in logs.
func New(logs Logs) *Set { return &Set{logs: logs, held: make(map[logKey]*log)} }

// Hold adds the slots of one decision to the set, until [Held.Release].
func (s *Set) Hold(held []Slot, degraded bool) *Held {
	h := &Held{set: s, slots: held, degraded: degraded}
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range held {
		s.add(&held[i])
	}
	return h
}

func (s *Set) add(slot *Slot) {
	key, lease := logKeyOf(&slot.Key), slot.lease()
	l := s.held[key]
	if l == nil {
		l = &log{key: slot.Key, lease: lease}
		s.held[key] = l
	}
	l.ids, l.fresh = append(l.ids, slot.ID), append(l.fresh, slot.ID)
	l.lease, l.keep = min(l.lease, lease), max(l.keep, slot.Plan.Keep)
	if s.timer == nil || l.lease/renewals < s.period {
		s.start(l.lease / renewals)
	}
}

// start starts the timer. A timer is used once, because one that was made in a testing/synctest bubble must not be used
// outside of it.
func (s *Set) start(period time.Duration) {
	if s.timer != nil {
		s.timer.Stop()
	}
	if s.closed {
		return
	}
	s.period = period
	s.timers++
	number := s.timers
	s.timer = time.AfterFunc(period, func() { s.tick(number) })
}

func (s *Set) remove(slot *Slot) {
	key := logKeyOf(&slot.Key)
	l := s.held[key]
	if l == nil {
		return
	}
	l.ids, l.fresh = without(l.ids, slot.ID), without(l.fresh, slot.ID)
	if len(l.ids) > 0 {
		return
	}
	delete(s.held, key)
	if len(s.held) == 0 && s.timer != nil {
		s.timer.Stop()
		s.timer = nil
	}
}

// without removes an ID, and changes the order of the others.
func without(ids []uint64, id uint64) []uint64 {
	i := slices.Index(ids, id)
	if i < 0 {
		return ids
	}
	last := len(ids) - 1
	ids[i] = ids[last]
	return ids[:last]
}

// tick renews all slots and starts the timer again. It does nothing if the timer was replaced meanwhile.
func (s *Set) tick(timer int) {
	due := s.due(timer)
	if len(due) == 0 {
		return
	}
	defer s.work.Done()
	next := make(chan *store.Renewal)
	var all sync.WaitGroup
	for range min(renewedBy, len(due)) {
		all.Go(func() {
			for r := range next {
				s.logs.Renew(r)
			}
		})
	}
	for i := range due {
		next <- &due[i]
	}
	close(next)
	all.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.renewing = false
}

// due returns what to renew, and begins the renewal. It is empty while another one is still running.
func (s *Set) due(timer int) (due []store.Renewal) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.timers != timer || s.timer == nil {
		return nil
	}
	s.timer = nil
	period := time.Duration(1<<63 - 1)
	for _, l := range s.held {
		period = min(period, l.lease/renewals)
	}
	s.start(period)
	if s.renewing {
		return nil
	}
	for _, l := range s.held {
		due = append(due, store.Renewal{Key: l.key, IDs: slices.Clone(l.ids), Lease: l.lease, Keep: l.keep})
	}
	s.renewing = true
	s.work.Add(1)
	return due
}

// Merge calls f with the slots that are held in the log of a key, except those of earlier calls. None of them is
// released before f has returned.
func (s *Set) Merge(key *store.Key, f func(ids []uint64)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if l := s.held[logKeyOf(key)]; l != nil && len(l.fresh) > 0 {
		f(l.fresh)
		l.fresh = nil
	}
}

// Len returns how many slots are held.
func (s *Set) Len() (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range s.held {
		n += len(l.ids)
	}
	return n
}

// Close ends the renewal for good. Slots that are held end with their lease.
func (s *Set) Close() {
	s.mu.Lock()
	s.closed = true
	if s.timer != nil {
		s.timer.Stop()
		s.timer = nil
	}
	s.mu.Unlock()
	s.work.Wait()
}

// Held is the slots of one decision.
type Held struct {
	Context context.Context //nolint:containedctx // of the request, for those who release the slots when it has ended

	set      *Set
	slots    []Slot
	degraded bool

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
		if failed := h.set.logs.Release(ctx, &h.slots[i], h.degraded); failed != nil {
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
