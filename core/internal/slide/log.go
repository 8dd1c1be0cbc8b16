// Package slide keeps the log of one window: what was admitted, oldest first.
//
// It has no locks and no clock: callers serialize the use of a [Log] and pass instants, which are nanoseconds on any
// clock of theirs. A caller drops what has left the window first, so all that a log holds counts.
package slide

import (
	"iter"
	"math"
	"math/bits"
	"unsafe"
)

// Log is a list of entries, oldest first. An entry has an instant, a cost in units, and an ID by which it can be
// settled. [New] makes one.
//
// Most logs hold entries of one unit each, with consecutive IDs, that nobody settles. Such a log keeps instants only:
// the newest ones in its tail, so that adding one writes to no other memory, and the others in a ring that grows and
// shrinks. Any other entry or settlement moves all entries to a [ledger], which is kept until the log is empty.
type Log struct {
	ring    []int64 // of the instants before those in tail; its length is 0 or a power of two
	ledger  *ledger // replaces ring and tail unless it is nil
	oldest  int64   // instant of entry 0, or never
	lastID  uint64  // the last that Add assigned; without a ledger it is the ID of the newest entry
	count   uint32
	head    uint32 // where entry 0 is in the ring, or in the ledger's
	tailLen uint8
	tail    [tailSize]int64
}

// Entry is an entry of a [Log].
type Entry struct {
	At   int64
	ID   uint64
	Cost int // in the ring of a ledger, 0 if the entry was removed
}

const (
	tailSize     = 7
	smallestRing = 16 // at least tailSize, and a power of two
	never        = math.MaxInt64
)

// New returns an empty log that assigns the IDs after lastID.
func New(lastID uint64) Log { return Log{lastID: lastID, oldest: never} }

// Units returns the cost of all entries together.
func (l *Log) Units() int {
	if l.ledger != nil {
		return l.ledger.units
	}
	return int(l.count)
}

// LastID returns the last ID that Add assigned.
func (l *Log) LastID() uint64 { return l.lastID }

// Oldest returns the instant of the oldest entry. It is later than all others if there is none.
func (l *Log) Oldest() int64 { return l.oldest }

// Newest returns the instant of the newest entry. There must be one.
func (l *Log) Newest() int64 { return l.at(int(l.count) - 1) }

// Bytes returns how many bytes of memory the entries take, apart from those in the Log itself.
func (l *Log) Bytes() int {
	n := len(l.ring) * int(unsafe.Sizeof(l.oldest))
	if g := l.ledger; g != nil {
		n += int(unsafe.Sizeof(*g)) + len(g.ring)*int(unsafe.Sizeof(Entry{}))
		if g.search != nil {
			const perID = 40 // about
			n += len(g.search.tree)*int(unsafe.Sizeof(g.units)) + len(g.search.index)*perID
		}
	}
	return n
}

// Entries returns the entries, oldest first. The log must not be changed meanwhile.
func (l *Log) Entries() iter.Seq[Entry] {
	return func(yield func(Entry) bool) {
		for i := range int(l.count) {
			if e := l.get(i); e.Cost > 0 && !yield(e) {
				return
			}
		}
	}
}

// get returns entry i, which may have been removed.
func (l *Log) get(i int) Entry {
	if l.ledger != nil {
		return *l.entry(i)
	}
	return Entry{At: l.at(i), ID: l.lastID - uint64(int(l.count)-1-i), Cost: 1}
}

// at returns the instant of entry i.
func (l *Log) at(i int) int64 {
	if l.ledger != nil {
		return l.entry(i).At
	}
	if old := l.ringLen(); i >= old {
		return l.tail[i-old]
	}
	return l.ring[(int(l.head)+i)&(len(l.ring)-1)]
}

// ringLen is the number of entries in the ring.
func (l *Log) ringLen() int { return int(l.count - uint32(l.tailLen)) }

// Drop removes the entries up to instant cut, cut included.
func (l *Log) Drop(cut int64) {
	if l.oldest <= cut {
		l.dropFirst(l.since(cut))
	}
}

// since returns the index of the first entry after instant cut. Entry 0 is not after it. The result is usually small,
// because few entries leave a window between two takes, and a large log does not fit into the cache: so it looks at the
// oldest entries first.
func (l *Log) since(cut int64) int {
	low, high := 0, 1 // the entry at low is not after it
	for high < int(l.count) && l.at(high) <= cut {
		low, high = high, 2*high
	}
	high = min(high, int(l.count))
	for high-low > 1 {
		if middle := (low + high) / 2; l.at(middle) > cut {
			high = middle
		} else {
			low = middle
		}
	}
	return high
}

// dropFirst removes the oldest n entries.
func (l *Log) dropFirst(n int) {
	old := l.ringLen()
	switch {
	case n == int(l.count):
		l.count, l.head, l.tailLen, l.ledger, l.oldest = 0, 0, 0, nil, never
		return
	case l.ledger != nil:
		l.dropFromLedger(n)
		return
	case n > old:
		l.tailLen = uint8(copy(l.tail[:], l.tail[n-old:l.tailLen]))
		l.head = 0
	default:
		l.head += uint32(n)
	}
	l.count -= uint32(n)
	l.oldest = l.at(0)
}

// Trim removes the oldest entries while what is left is at least that many units, at least 1.
func (l *Log) Trim(units int) {
	if l.ledger == nil {
		if n := int(l.count) - units; n > 0 {
			l.dropFirst(n)
		}
		return
	}
	for l.ledger.units-l.entry(0).Cost >= units {
		l.dropFirst(1)
	}
}

// UnitAt returns the instant of unit n, counted from 1 at the oldest entry. There must be that many.
func (l *Log) UnitAt(n int) int64 {
	if l.ledger != nil {
		return l.ledger.unitAt(l.place(0), n)
	}
	return l.at(n - 1)
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
		l.addToLedger(Entry{at, id, cost})
		return id
	}
	if l.tailLen == tailSize {
		l.spill()
	}
	l.tail[l.tailLen] = at
	l.tailLen++
	l.count++
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
	for n, old := 0, l.ringLen(); n < old; {
		from := (int(l.head) + n) & (len(l.ring) - 1)
		for _, at := range l.ring[from:min(from+old-n, len(l.ring))] { // not by copy, for whose end a GC would wait
			ring[n] = at
			n++
		}
	}
	l.ring, l.head = ring, 0
}

// Spare returns memory that callers may use as long as they add no entry. It is zero in a new log.
func (l *Log) Spare() *[tailSize]int64 { return &l.tail }

// Shrink frees memory if at most a quarter of it is used. Call it about once in a window: then a log that is filled
// again in each window keeps the memory that it needs.
func (l *Log) Shrink() {
	switch {
	case l.ledger != nil:
		if size := len(l.ledger.ring); size > smallestLedger && 4*int(l.count) <= size {
			l.resizeLedger(smallestLedger)
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
