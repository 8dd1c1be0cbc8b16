package memory

import (
	"math"
	"sync"
	"time"

	"github.com/sashlimit/sash/core/internal/slide"
	"github.com/sashlimit/sash/core/store"
)

// keyLog is the log of one key, or one that several keys share. It is 192 bytes long: one cache line that takes read
// and two that they write.
type keyLog struct {
	key  store.StoredKey
	keep time.Duration // the longest window of any take of this log
	slide.Log
	mu        sync.Mutex
	now       int64 // the latest instant at which the log was locked: instants never run backwards
	takes     uint8
	isCounter bool // it has the numbers of another algorithm
	removed   bool // from the table
	shared    bool // by keys without one of their own
}

const takesPerSweep = 8 // takes of a log after which other logs are swept

// lock locks the log, unless it has been removed from the table. It returns false if so. The caller has read the clock
// before, so that the time spent waiting for the lock does not count.
func (l *keyLog) lock(now int64) bool {
	l.mu.Lock()
	return l.locked(now)
}

// tryLock is lock unless the log is in use.
func (l *keyLog) tryLock(now int64) bool { return l.mu.TryLock() && l.locked(now) }

func (l *keyLog) locked(now int64) bool {
	if l.removed {
		l.mu.Unlock()
		return false
	}
	if l.now < now {
		l.now = now
	}
	return true
}

// instant is when takes were asked.
type instant struct {
	clock int64 // of the store
	wall  int64 // how far the wall clock is ahead of it in nanoseconds, if a plan keeps no entries; otherwise 0
}

// wallTime returns the instant by the wall clock, in microseconds. Like that of the log it never runs backwards, unless
// the wall clock is set back. The log may be nil.
func (l *keyLog) wallTime(now instant) int64 {
	clock := now.clock
	if l != nil {
		clock = l.now
	}
	return (clock + now.wall) / int64(time.Microsecond)
}

// unlock unlocks the log after a take. It reports whether it is time to sweep other logs.
func (l *keyLog) unlock() (sweep bool) {
	l.takes++
	sweep = l.takes%takesPerSweep == 0
	l.mu.Unlock()
	return sweep
}

// decide decides t, of which cost units must fit, in the log of its key, which is locked.
func (l *keyLog) decide(t *store.Take, cost int, mode store.Mode, now instant, a *store.Answer) {
	if isCounter(t.Plan) {
		l.count(t.Plan, l.wallTime(now), cost, mode, a)
		return
	}
	if l.keep < t.Plan.Keep { // a write would invalidate the cache line on other cores
		l.keep = t.Plan.Keep
	}
	l.Drop(l.now - int64(l.keep))
	t.ID = decide(&l.Log, l.now, t.ID, t.Plan, cost, mode, a)
}

// decideShared is decide for a key with that hash which shares the log.
func (l *keyLog) decideShared(hash uint64, t *store.Take, cost int, mode store.Mode, a *store.Answer) {
	units, mode := t.Plan.Counted(cost, mode)
	records := mode == store.ModeRecord
	l.keep = max(l.keep, t.Plan.Keep)
	l.Drop(l.now - int64(l.keep))
	switch {
	case mode == store.ModeChargeDenied:
		mode = store.ModeCharge // the denied takes of one key must not deny others
	case (records || len(t.Plan.Limits) == t.Plan.Shadow) && l.Units(0)+units > store.MaxRecorded:
		mode = store.ModePeek // the recorded takes of one key must not trim those of others
	}
	decide(&l.Log, l.now, sharedID(hash, t.ID), t.Plan, cost, mode, a)
	if records {
		a.Allowed, a.Retry = true, 0
	}
}

// sharedID returns the ID of an entry in a shared log. Its upper half identifies the key, its lower half the take.
func sharedID(hash, id uint64) uint64 { return hash&^math.MaxUint32 | id&math.MaxUint32 }

// sharedBy reports whether an entry of a shared log belongs to the key with that hash.
func sharedBy(id, hash uint64) bool { return (id^hash)>>32 == 0 }
