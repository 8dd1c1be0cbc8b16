// Package slide computes sliding windows over a log of what was admitted.
//
// It has no locks and no clock: callers serialize the use of a [Log] and pass the current instant. Instants are
// nanoseconds on any clock of the caller's.
package slide

import (
	"math/bits"
	"sort"
	"time"
	"unsafe"
)

// Log is a list of entries, oldest first. An entry has an instant, a cost in units, and an ID by which it can be
// corrected. The zero value is an empty log.
//
// Most logs hold entries of one unit each, with consecutive IDs, that nobody corrects. Such a log stores instants only:
// the newest ones in its tail, so that adding one writes to no other memory, and the others in a ring that grows and
// shrinks. Any other entry or correction moves all entries to a [ledger], which is kept until the log is empty.
type Log struct {
	ring    []int64 // of the instants before those in tail; its length is 0 or a power of two
	ledger  *ledger // replaces ring and tail unless it is nil
	oldest  int64   // instant of entry 0
	count   uint32
	head    uint32 // where entry 0 is in the ring, or in the ledger's
	tailLen uint8
	lastID  uint64 // the last that Add assigned; without a ledger it is the ID of the newest entry
	tail    [tailSize]int64
}

const (
	tailSize     = 7
	smallestRing = 16 // at least tailSize, and a power of two
)

// New returns an empty log that assigns the IDs after lastID. With the zero value of Log that is 0.
func New(lastID uint64) Log { return Log{lastID: lastID} }

// Len returns the number of entries.
func (l *Log) Len() int { return int(l.count) }

// LastID returns the last ID that Add assigned.
func (l *Log) LastID() uint64 { return l.lastID }

// Bytes returns how many bytes of memory the entries take, apart from those in the Log itself.
func (l *Log) Bytes() int {
	if l.ledger != nil {
		return int(unsafe.Sizeof(*l.ledger)) + len(l.ledger.ring)*int(unsafe.Sizeof(entry{}))
	}
	return len(l.ring) * int(unsafe.Sizeof(l.oldest))
}

// HasLedger reports whether the log stores more of its entries than instants.
func (l *Log) HasLedger() bool { return l.ledger != nil }

// At returns the instant of entry i.
func (l *Log) At(i int) int64 {
	if l.ledger != nil {
		return l.entry(i).at
	}
	if old := l.ringLen(); i >= old {
		return l.tail[i-old]
	}
	return l.ring[(int(l.head)+i)&(len(l.ring)-1)]
}

// ringLen is the number of entries in the ring.
func (l *Log) ringLen() int { return int(l.count - uint32(l.tailLen)) }

// ID returns the ID of entry i, or 0 if it cannot be corrected.
func (l *Log) ID(i int) uint64 {
	if l.ledger != nil {
		return l.entry(i).id
	}
	return l.lastID - uint64(int(l.count)-1-i)
}

// Units returns the total cost of entry i and all later ones. It is 0 if i is Len.
func (l *Log) Units(i int) int {
	if l.ledger != nil {
		return int(l.ledger.total - l.totalBefore(i))
	}
	return int(l.count) - i
}

// Cost returns the cost of entry i.
func (l *Log) Cost(i int) int { return l.Units(i) - l.Units(i+1) }

// Drop removes the entries up to instant cut, cut included.
func (l *Log) Drop(cut int64) {
	if n := l.Since(cut); n > 0 {
		l.dropFirst(n)
	}
}

// dropFirst removes the oldest n entries.
func (l *Log) dropFirst(n int) {
	switch old := l.ringLen(); {
	case n == int(l.count):
		l.count, l.head, l.tailLen, l.ledger = 0, 0, 0, nil
		return
	case l.ledger != nil:
		l.ledger.base = l.totalBefore(n)
		l.head += uint32(n)
	case n > old:
		l.tailLen = uint8(copy(l.tail[:], l.tail[n-old:l.tailLen]))
		l.head = 0
	default:
		l.head += uint32(n)
	}
	l.count -= uint32(n)
	l.oldest = l.At(0)
}

// Since returns the index of the first entry after instant cut, or Len if there is none.
func (l *Log) Since(cut int64) int {
	if l.count == 0 || l.oldest > cut {
		return 0
	}
	return l.search(cut)
}

// search is Since where entry 0 is not after cut. The result is usually small, because few entries leave a window
// between two takes, and a large log does not fit into the cache: so it looks at the oldest entries first.
func (l *Log) search(cut int64) int {
	low, high := 1, 2
	for high < int(l.count) && l.At(high-1) <= cut {
		low, high = high, 2*high
	}
	high = min(high, int(l.count))
	for low < high {
		middle := (low + high) / 2
		if l.At(middle) > cut {
			high = middle
		} else {
			low = middle + 1
		}
	}
	return low
}

// View returns the number of units in the window (now-window, now], and how long it takes until the oldest of them
// leaves it: 0 if there is none.
func (l *Log) View(now int64, window time.Duration) (used int, reset time.Duration) {
	first := l.Since(now - int64(window))
	switch first {
	case int(l.count):
		return 0, 0
	case 0:
		return l.Units(0), time.Duration(l.oldest + int64(window) - now)
	}
	return l.Units(first), time.Duration(l.At(first) + int64(window) - now)
}

// Wait returns how long it takes until cost more units fit into a window of quota units: 0 if they fit now. The cost
// must not be above the quota.
func (l *Log) Wait(now int64, window time.Duration, quota, cost int) time.Duration {
	first := l.Since(now - int64(window))
	over := l.Units(first) + cost - quota
	if over <= 0 {
		return 0
	}
	return time.Duration(l.unitAt(first, over) + int64(window) - now)
}

// unitAt is the instant of unit n, counted from 1 at entry first. There must be that many.
func (l *Log) unitAt(first, n int) int64 {
	if l.ledger == nil {
		return l.At(first + n - 1)
	}
	last := l.Units(first) - n // units that may follow it
	return l.At(first + sort.Search(int(l.count)-1-first, func(i int) bool { return l.Units(first+i+1) <= last }))
}

// Add appends an entry, whose instant must not be before that of the newest one. It assigns the next ID if id is 0, and
// returns the entry's ID.
func (l *Log) Add(at int64, id uint64, cost int) uint64 {
	if id != 0 || cost != 1 {
		l.openLedger()
	}
	if id == 0 {
		l.lastID++
		id = l.lastID
	}
	if l.count == 0 {
		l.oldest = at
	}
	if l.ledger != nil {
		l.addToLedger(at, id, cost)
	} else {
		if l.tailLen == tailSize {
			l.spill()
		}
		l.tail[l.tailLen] = at
		l.tailLen++
		l.count++
	}
	return id
}

// spill moves the whole tail to the ring. It moves no single entries because the ring is usually not in the cache.
func (l *Log) spill() {
	old := l.ringLen()
	if old+tailSize > len(l.ring) {
		l.resize(max(smallestRing, 2*len(l.ring)))
	}
	for i, at := range l.tail {
		l.ring[(int(l.head)+old+i)&(len(l.ring)-1)] = at
	}
	l.tailLen = 0
}

func (l *Log) resize(size int) {
	ring := make([]int64, size)
	for i := range l.ringLen() {
		ring[i] = l.At(i)
	}
	l.ring, l.head = ring, 0
}

// Spare returns memory that callers may use while the log has no entries. It is zero in a new log.
func (l *Log) Spare() *[tailSize]int64 { return &l.tail }

// Shrink frees memory if at most a quarter of it is used. Call it about once in the longest window: then a log that is
// filled again in each window keeps the memory that it needs.
func (l *Log) Shrink() {
	switch {
	case l.ledger != nil:
		if size := len(l.ledger.ring); size > smallestLedger && 4*int(l.count) <= size {
			l.resizeLedger(ringFor(l.count, smallestLedger))
		}
	case 4*int(l.count) > len(l.ring):
	case l.ringLen() == 0:
		l.ring = nil
	case len(l.ring) > smallestRing:
		l.resize(ringFor(l.count, smallestRing))
	}
}

// ringFor is the length of a ring for n entries: they fill at most half of it, and at least a quarter unless it is the
// smallest.
func ringFor(n uint32, smallest int) int {
	return max(smallest, 2<<bits.Len32(max(n, 1)-1))
}
