package memory

import (
	"math"
	"sync"
	"unsafe"

	"github.com/sashlimit/sash/core/internal/slide"
	"github.com/sashlimit/sash/core/store"
)

// entry has the logs of one key, or those that several keys share. It is 192 bytes long: one cache line that takes read
// and two that they write.
type entry struct {
	key storedKey
	log // the first; its limit is nil if the entry was removed from the table
	mu  sync.Mutex
	now int64 // the latest instant at which the entry was locked: instants never run backwards
}

// log is the log of a limit.
type log struct {
	limit     *store.Limit // one of the limits on it, of those with the longest window
	next      *log         // another log of the entry
	slide.Log              // of a counting algorithm it is empty, and its spare memory has the numbers
}

// lock locks the entry. The caller has read the clock before, so that the time spent waiting does not count.
func (e *entry) lock(now int64) {
	e.mu.Lock()
	e.now = max(e.now, now)
}

// find returns the log that a limit is on, or nil. The entry is locked.
func (e *entry) find(limit *store.Limit) *log {
	for l := &e.log; l != nil; l = l.next { // mostly it is on one that it was used for before
		if l.limit == limit {
			return l
		}
	}
	for l := &e.log; l != nil; l = l.next {
		switch {
		case l.limit == nil: // of an entry that was removed
			return nil
		case l.limit.Log == limit.Log && l.limit.Algorithm == limit.Algorithm:
			if l.limit.Window < limit.Window { // a lease of permits
				l.limit = limit
			}
			return l
		}
	}
	return nil
}

// add adds the log of a limit, which assigns the IDs after lastID.
func (e *entry) add(limit *store.Limit, lastID uint64) *log {
	e.next = &log{limit: limit, next: e.next, Log: slide.New(lastID)}
	return e.next
}

// drop removes what has left the window.
func (l *log) drop(now int64) {
	if !l.counts() {
		l.Drop(now - int64(l.limit.Window))
	}
}

// until returns the instant when the log will be void, if nothing is added, or one in the past if it is.
func (l *log) until() int64 {
	switch {
	case l.counts():
		return l.Spare()[endNumber]
	case l.Units() == 0:
		return math.MinInt64
	}
	return l.Newest() + int64(l.limit.Window)
}

// tidy removes logs that are void and, of the others, what has left the windows and unused memory. It returns the
// instant when one of them may be void, or never if all are, and the last ID that a void log assigned.
func (e *entry) tidy() (next int64, lastID uint64) {
	next = never
	var before *log
	for l := &e.log; l != nil; l = l.next {
		l.drop(e.now)
		l.Shrink()
		switch until := l.until(); {
		case until > e.now:
			next, before = min(next, until), l
			continue
		case before != nil:
			before.next = l.next
		default: // the first is part of the entry
			before = l
		}
		lastID = max(lastID, l.LastID())
	}
	return next, lastID
}

const never = math.MaxInt64

func (e *entry) bytes() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	n := int(unsafe.Sizeof(*e)-unsafe.Sizeof(e.log)) + e.key.heap()
	for l := &e.log; l != nil; l = l.next {
		n += int(unsafe.Sizeof(*l)) + l.Bytes()
	}
	return n
}
