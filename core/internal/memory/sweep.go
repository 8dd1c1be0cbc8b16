package memory

import (
	"maps"
	"math"
	"runtime"
	"slices"
	"time"
	"weak"
)

// Takes sweep a few logs each, so that keys which come find the places of those that are idle.
const (
	sweepPerKey   = 2  // logs looked at for each new key, so that keys leave faster than they come
	sweepWhenFull = 32 // ... where a new key finds no place
	takesPerSweep = 8  // takes of a log for which others are looked at
	sweepPerTakes = 2  // ... which are so many
)

// makeRoom looks for idle keys in one shard after the other, whoever asks, until it has looked at enough of them: in any
// other order it would come to some again before it had seen them all. It passes over shards that others have locked.
func (s *Store) makeRoom(sh *shard) (freed bool) {
	for i, left := 0, sweepWhenFull; i < shardCount && left > 0 && !freed; i++ {
		next := &s.shards[s.turn.Add(1)%shardCount]
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

// sweepNow sweeps unless somebody else is at it.
func (sh *shard) sweepNow(s *Store, now int64) {
	if sh.mu.TryLock() {
		sh.now = max(sh.now, now)
		sh.sweep(s, sweepPerTakes)
		sh.mu.Unlock()
		s.sweepWithin(now, longestPeriod)
	}
}

// sweep looks at the next n logs, forgets those that are empty and returns
// unused memory of the others. It reports whether a place became free.
func (sh *shard) sweep(s *Store, n int) (freed bool) {
	for n = min(n, sh.logs.used); n > 0; {
		places := sh.logs.all()
		if sh.hand >= len(places) {
			sh.hand = 0
		}
		p := &places[sh.hand]
		if p.log.Load() == nil {
			sh.hand++
			continue
		}
		n--
		if p.due.reached(sh.now) && sh.tidy(s, sh.hand) {
			freed = true
			continue // another log may have taken its place
		}
		sh.hand++
	}
	return freed
}

// tidy reports whether the log in place i was empty and has been removed.
func (sh *shard) tidy(s *Store, i int) (removed bool) {
	p := &sh.logs.all()[i]
	log := p.log.Load()
	log.lock(sh.now)
	defer log.mu.Unlock()
	log.Drop(log.now - int64(log.keep))
	if log.Len() == 0 {
		sh.remove(s, i)
		return true
	}
	log.Shrink()
	p.due = dueAt(log.At(log.Len()-1), log.keep)
	return false
}

// remove forgets the log in place i. It and the shard are locked.
func (sh *shard) remove(s *Store, i int) {
	log := sh.logs.all()[i].log.Load()
	log.gone = true
	sh.lastID, sh.now = max(sh.lastID, log.LastID()), max(sh.now, log.now)
	sh.logs.remove(i)
	s.release(&log.key)
}

// A timer sweeps all logs now and then while there are any, so that idle ones leave whatever the traffic is: a log
// within half its longest window after it has become idle, or within shortestPeriod if that is more.
const (
	shortestPeriod = 30 * time.Second
	longestPeriod  = time.Hour
	timerDelay     = time.Minute // a timer that is late by more is taken for lost
	noTimer        = math.MinInt64

	// A sweep holds a shard's lock while it passes so many places of the table, or looks at so many logs.
	sweepPlaces = 4096
	sweepLogs   = 64
)

// sweepWithin makes sure that a timer is pending, which fires soon enough for a log whose longest window is keep.
func (s *Store) sweepWithin(now int64, keep time.Duration) {
	want := int64(min(max(keep/2, shortestPeriod), longestPeriod))
	period := s.period.Load()
	for want < period && !s.period.CompareAndSwap(period, want) {
		period = s.period.Load()
	}
	period = min(period, want)
	// A timer of a bubble that has ended never fires, and clocks of bubbles begin anew.
	if fires := s.fires.Load(); fires < now-int64(timerDelay) || fires > now+period {
		if s.fires.CompareAndSwap(fires, now+period) {
			s.startTimer(now+period, time.Duration(period))
		}
	}
}

// startTimer starts a timer that does not keep the store in memory. A timer is used once and never stopped: one that
// was made in a bubble of testing/synctest must not be touched outside of it, and a store may be used in several.
func (s *Store) startTimer(fires int64, in time.Duration) {
	store := weak.Make(s)
	time.AfterFunc(in, func() {
		if s := store.Value(); s != nil && s.fires.Load() == fires { // otherwise another timer has followed
			s.sweepByTimer(fires)
		}
	})
}

func (s *Store) sweepByTimer(fires int64) {
	ahead := s.sweepAll()
	// Where logs are ahead of the clock, which happens in bubbles alone, nothing becomes idle: a timer that started
	// itself again for ever would keep a bubble from finding out that it is deadlocked.
	if s.fires.CompareAndSwap(fires, noTimer) && !ahead && (s.keys.Load() > 0 || s.sharedLogs.Load() > 0) {
		s.sweepWithin(s.clock(), longestPeriod)
	}
}

// sweepAll looks at all logs that may be idle. It reports whether logs are ahead of the clock.
func (s *Store) sweepAll() (ahead bool) {
	for i := range s.shards {
		sh := &s.shards[i]
		var at cursor
		for more := true; more; {
			sh.mu.Lock()
			now := s.clock()
			ahead = ahead || sh.now > now+int64(timerDelay)
			sh.now = max(sh.now, now)
			more = sh.sweepPart(s, &at)
			sh.mu.Unlock()
			runtime.Gosched()
		}
		sh.sweepShared(s)
	}
	return ahead
}

// cursor is how far a sweep has come in a table.
type cursor struct{ next, size int }

// sweepPart goes on with a sweep of the table for a while. It reports whether there is more to sweep.
func (sh *shard) sweepPart(s *Store, at *cursor) (more bool) {
	for passed, looked := 0, 0; passed < sweepPlaces && looked < sweepLogs; passed++ {
		places := sh.logs.all()
		if at.size != len(places) { // logs have other places now
			*at = cursor{size: len(places)}
		}
		if at.next == len(places) {
			if sh.logs.used == 0 {
				sh.logs.places.Store(nil)
			}
			return false
		}
		p := &places[at.next]
		if p.log.Load() != nil && p.due.reached(sh.now) {
			looked++
			if sh.tidy(s, at.next) {
				continue // another log may have taken its place
			}
		}
		at.next++
	}
	return true
}

// sweepShared does for logs that keys share what sweepPart does for others.
func (sh *shard) sweepShared(s *Store) {
	sh.mu.Lock()
	before := len(sh.shared)
	slots := slices.Collect(maps.Keys(sh.shared))
	sh.mu.Unlock()
	for part := range slices.Chunk(slots, sweepLogs) {
		sh.mu.Lock()
		for _, slot := range part {
			sh.tidyShared(s, slot)
		}
		sh.mu.Unlock()
	}
	sh.mu.Lock()
	defer sh.mu.Unlock()
	switch after := len(sh.shared); {
	case before == 0:
	case after == 0:
		sh.shared = nil
	case after <= before/2: // a map keeps its size when entries are deleted
		sh.shared = maps.Collect(maps.All(sh.shared))
	}
}

func (sh *shard) tidyShared(s *Store, slot string) {
	log := sh.shared[slot]
	if log == nil {
		return
	}
	log.lock(max(sh.now, s.clock()))
	defer log.mu.Unlock()
	sh.now = max(sh.now, log.now)
	log.Drop(log.now - int64(log.keep))
	if log.Len() == 0 {
		delete(sh.shared, slot)
		s.sharedLogs.Add(-1)
		return
	}
	log.Shrink()
}
