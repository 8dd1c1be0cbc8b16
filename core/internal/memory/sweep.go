package memory

import (
	"math"
	"runtime"
	"time"
	"weak"
)

// Takes sweep a few logs each, so that new keys get the places of idle ones.
const (
	sweepPerKey   = 2  // logs swept for each new key, so that keys leave faster than they come
	sweepWhenFull = 32 // logs swept for a new key if there is no place
	sweepPerTakes = 2  // logs swept after takesPerSweep takes of a log
)

// makeRoom sweeps up to sweepWhenFull logs until a place is free. It continues with the shard after the one that was
// swept last for any key, so that it sweeps each log once before it sweeps one again. It skips shards that are locked.
func (s *Store) makeRoom(sh *shard) (freed bool) {
	for i, left := 0, sweepWhenFull; i < shardCount && left > 0 && !freed; i++ {
		next := &s.shards[s.swept.Add(1)%shardCount]
		if next != sh && !next.mu.TryLock() {
			continue
		}
		n := min(left, next.logs.used)
		next.now = max(next.now, sh.now)
		freed = next.sweep(s, n)
		left -= n
		if next != sh {
			next.mu.Unlock()
		}
	}
	return freed
}

// sweepNow sweeps a few logs, unless the shard is locked.
func (sh *shard) sweepNow(s *Store, now int64) {
	if sh.mu.TryLock() {
		sh.now = max(sh.now, now)
		sh.sweep(s, sweepPerTakes)
		sh.mu.Unlock()
		s.sweepWithin(now, longestPeriod)
	}
}

// sweep removes those of the next n logs that are empty and frees unused memory of the others. Shared logs, which have
// no place, are swept beside these. It reports whether a place became free.
func (sh *shard) sweep(s *Store, n int) (freed bool) {
	shares := s.sharedLogs.Load() > 0 // if not, no log is read before it is due: it is seldom in the cache
	for pass := len(sh.logs.all()); n > 0 && pass > 0 && sh.logs.used > 0; pass-- {
		slots := sh.logs.all()
		switch {
		case sh.size != len(slots): // the table was resized, so logs have moved
			sh.hand, sh.size = 0, len(slots)
		case sh.hand == len(slots):
			sh.hand, sh.swept = 0, true
		}
		p := &slots[sh.hand]
		log := p.log.Load()
		if log == nil {
			sh.hand++
			continue
		}
		if !shares || !log.shared {
			n--
		}
		if p.due.reached(sh.now) && sh.tidy(s, sh.hand) {
			freed = freed || !log.shared
			continue // another log may have moved to this slot
		}
		sh.hand++
	}
	return freed
}

// tidy sweeps the log in slot i. It reports whether the log was empty and has been removed.
func (sh *shard) tidy(s *Store, i int) (removed bool) {
	p := &sh.logs.all()[i]
	log := p.log.Load()
	log.lock(sh.now)
	defer log.mu.Unlock()
	log.Drop(log.now - int64(log.keep))
	if log.isVoid() {
		sh.remove(s, i)
		return true
	}
	if log.Len() == 0 {
		p.due = dueAt(log.Spare()[endNumber], 0)
		return false
	}
	log.Shrink()
	p.due = dueAt(log.At(log.Len()-1), log.keep)
	return false
}

// remove removes the log in slot i. The caller holds the locks of the log and of the shard.
func (sh *shard) remove(s *Store, i int) {
	log := sh.logs.all()[i].log.Load()
	log.removed = true
	sh.lastID, sh.now = max(sh.lastID, log.LastID()), max(sh.now, log.now)
	if sh.logs.remove(i); log.shared {
		s.sharedLogs.Add(-1)
	} else {
		s.release(&log.key)
	}
}

// A timer sweeps all logs periodically while there are any, so that idle logs are removed without traffic: within half
// of their longest window after they have become empty, or within shortestPeriod if that is longer.
const (
	shortestPeriod = 30 * time.Second
	longestPeriod  = time.Hour
	timerDelay     = time.Minute // a timer that is late by more has been lost
	noTimer        = math.MinInt64

	sweepLogs = 64 // logs after which a sweep by timer unlocks the shard
)

// sweepWithin starts a timer, unless one is pending that fires soon enough for a log whose longest window is keep.
func (s *Store) sweepWithin(now int64, keep time.Duration) {
	want := int64(min(max(keep/2, shortestPeriod), longestPeriod))
	period := s.period.Load()
	for want < period && !s.period.CompareAndSwap(period, want) {
		period = s.period.Load()
	}
	period = min(period, want)
	// In tests a pending timer may be lost: the timers of a testing/synctest bubble end with it, and each bubble has a
	// clock of its own.
	if at := s.timerAt.Load(); at < now-int64(timerDelay) || at > now+period {
		if s.timerAt.CompareAndSwap(at, now+period) {
			s.startTimer(now+period, time.Duration(period))
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
		ahead := s.sweepAll()
		// Logs ahead of the clock, which happens only in testing/synctest bubbles, do not become empty. The timer must
		// not restart itself then, or else the bubble would never detect a deadlock.
		if s.timerAt.CompareAndSwap(at, noTimer) && !ahead && (s.keys.Load() > 0 || s.sharedLogs.Load() > 0) {
			s.sweepWithin(s.clock(), longestPeriod)
		}
	})
}

// sweepAll sweeps all logs. It reports whether logs are ahead of the clock.
func (s *Store) sweepAll() (ahead bool) {
	for i := range s.shards {
		sh := &s.shards[i]
		for first, more := true, true; more; first = false {
			sh.mu.Lock()
			now := s.clock()
			ahead = ahead || sh.now > now+int64(timerDelay)
			sh.now = max(sh.now, now)
			more = sh.sweepPart(s, first)
			sh.mu.Unlock()
			runtime.Gosched()
		}
	}
	return ahead
}

// sweepPart begins or continues a sweep of the whole table. It reports whether there is more to sweep.
func (sh *shard) sweepPart(s *Store, begin bool) (more bool) {
	if begin {
		sh.hand, sh.swept = 0, false
	}
	if sh.sweep(s, sweepLogs); sh.logs.used == 0 {
		sh.logs.slots.Store(nil)
		return false
	}
	return !sh.swept
}
