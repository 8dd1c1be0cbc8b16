// Package slots knows the slots that requests in flight hold, and renews them until they are released.
//
// One timer serves all slots of a [Set]. It is there only while slots are held.
package slots

import (
	"context"
	"log/slog"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sashlimit/sash/core/store"
)

// Logs are the logs that the slots are in.
type Logs interface {
	// Renew renews slots, of which the logs of this process have those that are merged. An error that is an outage
	// makes the Set try again soon.
	Renew(ctx context.Context, r *store.Renewal, merged []uint64) error

	// Release gives a slot back.
	Release(ctx context.Context, s *Slot) error
}

// Slot is the entry of a take in a log of slots.
type Slot struct {
	Key      store.Key // which outlives the request
	ID       uint64
	Plan     *store.Plan
	Degraded bool // it was taken without the store
	Renewed  bool // a renewal may have added it to the store

	forgotten bool // nobody can release it any more
	merged    bool // the logs of this process have it, as it was taken there or Merge was called with it
	renewals  int32

	Taken int32 // by Hold: how many slots of the log were held already, if that is all of them
	at    int32 // its place in log
	log   *log  // nil when the slot is not held
	held  *Held // nil once it is watched
}

const (
	renewals   = 3  // of a slot within its lease
	renewedBy  = 8  // logs at the same time, beside those that take longer than slow
	retries    = 4  // of a renewal that has failed, before the next one is due
	watchAfter = 30 // renewals

	slow         = 20 * time.Millisecond
	longestRetry = time.Second
)

// Set is the slots that are held. It is safe for concurrent use.
type Set struct {
	// Freed, unless it is nil, is called with the key of a slot that was given back later than Release has returned: a
	// renewal had added it to its log again. It is set before the set is used.
	Freed func(*store.Key)

	logs   Logs
	ctx    context.Context //nolint:containedctx // of renewals; Close ends it
	cancel context.CancelFunc

	mu     sync.Mutex
	held   map[logKey]*log
	timer  *time.Timer // nil while no slot is held
	timers int         // started so far
	period time.Duration
	next   time.Time // when all slots are renewed; before, only those whose renewal has failed are
	closed bool
	work   sync.WaitGroup
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
	slots       []*Slot
	unmerged    int  // how many of them Merge is yet to be called with
	failed      bool // they are to be renewed before the others are
	lease, keep time.Duration

	due      bool    // Renew is called, or will be soon
	renewing bool    // Renew is called
	released []*Slot // since then
}

// New makes an empty set of slots in logs.
func New(logs Logs) *Set {
	s := &Set{logs: logs, held: make(map[logKey]*log)}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	return s
}

// Hold adds the slots of one decision to the set, until [Held.Release]. If requests of this process hold all slots of
// one of the logs already, that log has lost some. Then Hold gives all back, and returns nil.
func (s *Set) Hold(ctx context.Context, slots []Slot) *Held {
	h := &Held{Context: ctx, set: s, Slots: slots}
	if s.add(h) {
		return h
	}
	for i := range slots {
		s.logs.Release(ctx, &slots[i]) //nolint:errcheck // the lease ends the slot
	}
	return nil
}

func (s *Set) add(h *Held) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range h.Slots {
		slot := &h.Slots[i]
		l := s.addSlot(slot)
		if slot.held = h; len(l.slots) <= slot.Plan.Smallest() || s.closed {
			if slot.Degraded { // the store does not have it
				s.renewSoon(l)
			}
			continue
		}
		slot.Taken = int32(len(l.slots) - 1)
		for j := range i + 1 {
			s.remove(&h.Slots[j])
		}
		s.renewSoon(l)
		return false
	}
	return true
}

// renewSoon has the slots of a log renewed before the others are.
func (s *Set) renewSoon(l *log) {
	if !l.failed && !l.due {
		l.failed = true
		s.start(s.retry())
	}
}

func (s *Set) addSlot(slot *Slot) *log {
	key, lease := logKeyOf(&slot.Key), slot.Plan.Keep
	for i := range slot.Plan.Limits { // the shortest of their windows
		lease = min(lease, slot.Plan.Limits[i].Window)
	}
	l := s.held[key]
	if l == nil {
		l = &log{key: slot.Key, lease: lease}
		s.held[key] = l
	}
	slot.log, slot.at = l, int32(len(l.slots))
	l.slots = append(l.slots, slot)
	if slot.merged = slot.Degraded; !slot.merged {
		l.unmerged++
	}
	l.lease, l.keep = min(l.lease, lease), max(l.keep, slot.Plan.Keep)
	if s.timer == nil || l.lease/renewals < s.period {
		s.period, s.next = l.lease/renewals, time.Time{}
		s.start(s.period)
	}
	return l
}

// start starts the timer. A timer is used once, because one that was made in a testing/synctest bubble must not be used
// outside of it.
func (s *Set) start(wait time.Duration) {
	if s.timer != nil {
		s.timer.Stop()
	}
	if s.closed {
		return
	}
	s.timers++
	number := s.timers
	s.timer = time.AfterFunc(wait, func() { s.tick(number) })
}

// retry returns when slots whose renewal has failed are renewed again.
func (s *Set) retry() time.Duration { return min(s.period/retries, longestRetry) }

func (s *Set) remove(slot *Slot) {
	l := slot.log
	if l == nil {
		return
	}
	n := len(l.slots) - 1
	last := l.slots[n]
	l.slots[slot.at], last.at = last, slot.at
	l.slots[n], slot.log = nil, nil
	l.slots = l.slots[:n]
	if l.renewing && slot.Renewed {
		l.released = append(l.released, slot)
	}
	if !slot.merged {
		l.unmerged--
	}
	if n > 0 {
		return
	}
	delete(s.held, logKeyOf(&l.key))
	if len(s.held) == 0 && s.timer != nil {
		s.timer.Stop()
		s.timer = nil
	}
}

// Hasten renews all slots now.
func (s *Set) Hasten() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.next = (time.Time{}); s.timer != nil {
		s.start(0)
	}
}

// tick renews slots and starts the timer again. It does nothing if the timer was replaced meanwhile.
func (s *Set) tick(timer int) {
	due := s.due(timer)
	if len(due) == 0 {
		return
	}
	defer s.work.Done()
	turns := make(chan struct{}, renewedBy)
	var all sync.WaitGroup
	for _, l := range due {
		turns <- struct{}{}
		all.Go(func() {
			end := sync.OnceFunc(func() { <-turns })
			defer end()
			defer time.AfterFunc(slow, end).Stop()
			s.renew(l)
		})
	}
	all.Wait()
}

// due returns the logs to renew, but those that an earlier tick still renews. Logs that have not answered come last.
func (s *Set) due(timer int) (due []*log) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.timers != timer || s.timer == nil {
		return nil
	}
	now := time.Now()
	all := !now.Before(s.next)
	if all {
		s.drop()
		s.period = math.MaxInt64
		for _, l := range s.held {
			s.period = min(s.period, l.lease/renewals)
		}
		s.next = now.Add(s.period)
	}
	if s.timer == nil { // all were forgotten
		return nil
	}
	s.start(s.next.Sub(now))
	var failed []*log
	for _, l := range s.held {
		switch {
		case l.due || !all && !l.failed:
			continue
		case l.failed:
			failed = append(failed, l)
		default:
			due = append(due, l)
		}
		l.due = true
	}
	if due = append(due, failed...); len(due) > 0 {
		s.work.Add(1)
	}
	return due
}

// renew renews the slots of a log, soon again if that fails. Those that are released meanwhile are given back once
// more, since the renewal may have added them to the log after that.
func (s *Set) renew(l *log) {
	asked, merged := s.ask(l)
	if len(asked.IDs) == 0 {
		return
	}
	err := s.logs.Renew(s.ctx, &asked, merged)
	s.mu.Lock()
	released := l.released
	l.due, l.renewing, l.released = false, false, nil
	if l.failed = store.IsOutage(err); l.failed && s.timer != nil {
		s.start(min(time.Until(s.next), s.retry()))
	}
	s.mu.Unlock()
	for _, slot := range released {
		s.logs.Release(s.ctx, slot) //nolint:errcheck // the lease ends the slot
		if s.Freed != nil {
			s.Freed(&slot.Key)
		}
	}
}

// ask begins the renewal of a log's slots. It returns what to ask for, and those of the slots that Merge was called
// with.
func (s *Set) ask(l *log) (asked store.Renewal, merged []uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	asked = store.Renewal{Key: l.key, Keep: l.keep}
	for _, slot := range l.slots {
		asked.IDs = append(asked.IDs, slot.ID)
		if slot.Renewed = true; slot.merged {
			merged = append(merged, slot.ID)
		}
	}
	l.renewing = len(asked.IDs) > 0
	l.due = l.renewing
	return asked, merged
}

// drop removes the slots that nobody can release, and watches those that have been held for long.
func (s *Set) drop() {
	policy, dropped := "", 0
	for _, l := range s.held {
		for _, slot := range slices.Backward(l.slots) { // remove moves only slots that were visited
			if slot.renewals++; slot.renewals >= watchAfter && slot.held != nil {
				slot.held.watch()
			}
			if slot.forgotten {
				s.remove(slot)
				policy, _, _ = strings.Cut(slot.Key.Namespace.Policy(), ":") // the log's label follows
				dropped++
			}
		}
	}
	if dropped > 0 {
		slog.Default().LogAttrs(s.ctx, slog.LevelWarn,
			"sash: requests in flight were not released, so their permits end with their lease",
			slog.String("policy", policy), slog.Int("permits", dropped),
			slog.String("remedy", "defer Decision.Release after each Allow, AllowN, AllowAtMost and Wait"))
	}
}

// Merge calls f with the slots that are held in the log of a key and were taken from the store, except those of earlier
// calls. None of them is released before f has returned.
func (s *Set) Merge(key *store.Key, f func(ids []uint64)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.held[logKeyOf(key)]
	if l == nil || l.unmerged == 0 {
		return
	}
	var ids []uint64
	for _, slot := range l.slots {
		if !slot.merged {
			ids = append(ids, slot.ID)
			slot.merged = true
		}
	}
	f(ids)
	l.unmerged = 0
}

// Len returns how many slots are held.
func (s *Set) Len() (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range s.held {
		n += len(l.slots)
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
	s.cancel()
	s.work.Wait()
}
