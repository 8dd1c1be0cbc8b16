package memory

import (
	"math"
	"runtime"
	"time"
	"weak"
)

// New keys sweep a few entries each, so that they get the places of idle ones.
const (
	sweepPerKey   = 2  // entries swept for each new key, so that keys leave faster than they come
	sweepWhenFull = 32 // entries swept for a new key if there is no place
)

// makeRoom sweeps up to sweepWhenFull entries until a place is free. It continues with the shard after the one that was
// swept last for any key, so that it sweeps each entry once before it sweeps one again. It skips shards that are locked.
func (s *Store) makeRoom(sh *shard) (freed bool) {
	for i, left := 0, sweepWhenFull; i < shardCount && left > 0 && !freed; i++ {
		next := &s.shards[s.swept.Add(1)%shardCount]
		if next != sh && !next.mu.TryLock() {
			continue
		}
		n := min(left, next.entries.used)
		next.now = max(next.now, sh.now)
		freed = next.sweep(s, n)
		left -= n
		if next != sh {
			next.mu.Unlock()
		}
	}
	return freed
}

// sweep looks at the next n entries: it removes those that are void, and frees unused memory of the others. Shared
// entries, which have no place, are swept beside these. It reports whether a place became free.
func (sh *shard) sweep(s *Store, n int) (freed bool) {
	shares := s.sharing.Load() > 0 // if not, no entry is read before it is due: it is seldom in the cache
	for pass := len(sh.entries.all()); n > 0 && pass > 0 && sh.entries.used > 0; pass-- {
		slots := sh.entries.all()
		switch {
		case sh.size != len(slots): // the table was resized, so entries have moved
			sh.hand, sh.size = 0, len(slots)
		case sh.hand == len(slots):
			sh.hand, sh.swept = 0, true
		}
		p := &slots[sh.hand]
		e := p.entry.Load()
		if e == nil {
			sh.hand++
			continue
		}
		shared := shares && e.isShared()
		if !shared {
			n--
		}
		if p.due.after(sh.now) <= 0 {
			e.lock(sh.now)
			removed := sh.tidy(s, sh.hand)
			if e.mu.Unlock(); removed {
				freed = freed || !shared
				continue // another entry may have moved to this slot
			}
		}
		sh.next = min(sh.next, p.due.after(sh.now))
		sh.hand++
	}
	return freed
}

// tidy removes the entry in slot i, which is locked, if it is void. Otherwise it frees what memory it can. It reports
// whether the entry was removed.
func (sh *shard) tidy(s *Store, i int) (removed bool) {
	p := &sh.entries.all()[i]
	e := p.entry.Load()
	until, lastID := e.tidy()
	sh.lastID = max(sh.lastID, lastID)
	if until > e.now {
		p.due = dueAt(min(until, e.now+int64(longestDue)))
		return false
	}
	sh.lastID, sh.now = max(sh.lastID, e.LastID()), max(sh.now, e.now)
	e.limit = nil // see entry
	if sh.entries.remove(i); e.isShared() {
		s.sharing.Add(-1)
	} else {
		s.keys.Add(-1)
	}
	return true
}

// A timer sweeps all entries while there are any, so that idle ones are removed without traffic: when the first of them
// may be void, but no earlier than shortestPeriod after the sweep before it.
const (
	shortestPeriod = 30 * time.Second
	longestPeriod  = 24 * time.Hour
	timerDelay     = time.Minute // a timer that is late by more has been lost
	noTimer        = math.MinInt64

	sweepEntries = 64 // entries after which a sweep by timer unlocks the shard
)

// sweepIn starts a timer for an entry that may be void after that time, unless one is pending that fires soon enough.
func (s *Store) sweepIn(now int64, in time.Duration) {
	in = min(max(in, shortestPeriod), longestPeriod)
	// In tests a pending timer may be lost: the timers of a testing/synctest bubble end with it, and each bubble has a
	// clock of its own.
	next := now + int64(in)
	if at := s.timerAt.Load(); at < now-int64(timerDelay) || at > next {
		if s.timerAt.CompareAndSwap(at, next) {
			s.startTimer(next, in)
		}
	}
}

// startTimer starts a timer that does not keep the store in memory. A timer is used once and never stopped, because a
// timer made in a testing/synctest bubble must not be used outside of it, and a store may be used in several bubbles.
func (s *Store) startTimer(at int64, in time.Duration) {
	store := weak.Make(s)
	time.AfterFunc(in, func() {
		s := store.Value()
		if s == nil || s.timerAt.Load() != at { // another timer has replaced this one
			return
		}
		next, ahead := s.sweepAll()
		// Entries ahead of the clock, which happens only in testing/synctest bubbles, do not become void. The timer must
		// not restart itself then, or else the bubble would never detect a deadlock.
		if s.timerAt.CompareAndSwap(at, noTimer) && !ahead && (s.keys.Load() > 0 || s.sharing.Load() > 0) {
			s.sweepIn(s.clock(), next)
		}
	})
}

// sweepAll sweeps all entries. It returns how long it takes until another one may be void, and whether entries are ahead
// of the clock.
func (s *Store) sweepAll() (next time.Duration, ahead bool) {
	next = longestPeriod
	for i := range s.shards {
		sh := &s.shards[i]
		for first, more := true, true; more; first = false {
			sh.mu.Lock()
			if more = sh.entries.used > 0; more {
				now := s.clock()
				ahead = ahead || sh.now > now+int64(timerDelay)
				sh.now = max(sh.now, now)
				more = sh.sweepPart(s, first)
				next = min(next, sh.next)
			}
			if sh.mu.Unlock(); more {
				runtime.Gosched()
			}
		}
	}
	return next, ahead
}

// sweepPart begins or continues a sweep of the whole table. It reports whether there is more to sweep.
func (sh *shard) sweepPart(s *Store, begin bool) (more bool) {
	if begin {
		sh.hand, sh.swept, sh.next = 0, false, longestPeriod
	}
	if sh.sweep(s, sweepEntries); sh.entries.used == 0 {
		sh.entries.slots.Store(nil)
		return false
	}
	return !sh.swept
}
