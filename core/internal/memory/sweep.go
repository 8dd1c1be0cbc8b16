package memory

import (
	"math"
	"runtime"
	"time"
	"weak"

	"github.com/sashlimit/sash/core/store"
)

const (
	sweepAtOnce   = 64  // slots that a sweep looks at while it holds a shard's lock
	sweepWhenFull = 128 // entries, about, that are swept for a new key if there is no place
)

// sweep looks at the entries in some slots: it removes those that are void, and frees unused memory of the others. The
// caller holds the shard's lock, and that of no entry.
func (sh *shard) sweep(s *Store, first int) {
	for i := first; i < first+sweepAtOnce && i < len(sh.entries.all()); {
		p := &sh.entries.all()[i]
		e := p.entry.Load()
		if e != nil && !p.due.isAfter(sh.now) { // earlier it is not even read, since it is seldom in the cache
			e.lock(sh.now)
			removed := sh.tidy(s, i)
			if e.mu.Unlock(); removed {
				continue // another entry may have moved to this slot
			}
		}
		i++
	}
}

// tidy removes the entry in slot i, which is locked, if it is void. Otherwise it frees what memory it can. It reports
// whether the entry was removed.
func (sh *shard) tidy(s *Store, i int) (removed bool) {
	p := &sh.entries.all()[i]
	e := p.entry.Load()
	next, lastID := e.tidy()
	sh.lastID = max(sh.lastID, lastID)
	if next != never {
		p.due = dueAt(min(next, e.now+int64(longestDue)))
		return false
	}
	sh.now = max(sh.now, e.now)
	e.limit = nil // see entry
	if sh.entries.remove(i); e.isShared() {
		s.sharing.Add(-1)
	} else {
		s.keys.Add(-1)
	}
	return true
}

// makeRoom sweeps entries if all places are taken and the key of a part has no entry, until a place is free. It begins
// where it has ended for any key before. It skips shards that are locked, but for that of the part, which the caller
// has locked, without the lock of any entry.
func (s *Store) makeRoom(p *part, k *store.Key) {
	if s.keys.Load() < s.maxKeys || p.shard.entries.find(k, p.hash) != nil {
		return
	}
	for i, seen := 0, 0; i < shardCount && seen < sweepWhenFull && s.keys.Load() >= s.maxKeys; i++ {
		hand := s.hand.Add(1)
		next := &s.shards[hand%shardCount]
		if next != p.shard && !next.mu.TryLock() {
			continue
		}
		if slots := len(next.entries.all()); slots > 0 {
			next.now = max(next.now, p.at)
			next.sweep(s, int(hand/shardCount)*sweepAtOnce%slots)
			seen += min(next.entries.used, sweepAtOnce)
		}
		if next != p.shard {
			next.mu.Unlock()
		}
	}
}

// A timer sweeps all entries once in a sweepPeriod while there are any, so that idle ones are removed without traffic.
const (
	sweepPeriod = 30 * time.Second
	timerDelay  = time.Minute // a timer that is late by more has been lost
	noTimer     = math.MinInt64
)

// sweepSoon starts the timer, unless it is pending. In tests it may be lost: the timers of a testing/synctest bubble
// end with it, and each bubble has a clock of its own. It does not keep the store in memory. A timer is used once and
// never stopped, because one made in a bubble must not be used outside of it, and a store may be used in several
// bubbles.
func (s *Store) sweepSoon(now int64) {
	at, next := s.timerAt.Load(), now+int64(sweepPeriod)
	if at >= now-int64(timerDelay) && at <= next || !s.timerAt.CompareAndSwap(at, next) {
		return
	}
	store := weak.Make(s)
	time.AfterFunc(sweepPeriod, func() {
		s := store.Value()
		if s == nil || s.timerAt.Load() != next { // another timer has replaced this one
			return
		}
		ahead := s.sweepAll()
		// Entries ahead of the clock, which happens only in testing/synctest bubbles, do not become void. The timer
		// must not restart itself then, or else the bubble would never detect a deadlock.
		if s.timerAt.CompareAndSwap(next, noTimer) && !ahead && (s.keys.Load() > 0 || s.sharing.Load() > 0) {
			s.sweepSoon(s.clock())
		}
	})
}

// sweepAll sweeps all entries. It reports whether some are ahead of the clock.
func (s *Store) sweepAll() (ahead bool) {
	for i := range s.shards {
		sh := &s.shards[i]
		for slot, more := 0, true; more; {
			sh.mu.Lock()
			size := len(sh.entries.all())
			if sh.entries.used > 0 {
				now := s.clock()
				ahead = ahead || sh.now > now+int64(timerDelay)
				sh.now = max(sh.now, now)
				sh.sweep(s, slot)
			}
			if slot += sweepAtOnce; size != len(sh.entries.all()) {
				slot = 0 // the table has shrunk, so entries have moved
			}
			if more = sh.entries.used > 0 && slot < size; sh.entries.used == 0 {
				sh.entries.slots.Store(nil)
			}
			if sh.mu.Unlock(); more {
				runtime.Gosched()
			}
		}
	}
	return ahead
}
