package slide

import (
	"slices"
	"sort"
)

// ledger stores the entries of a [Log] with their costs and IDs.
//
// Entries carry a running total of units, so that the units since an instant, and the instant of a unit, are found by
// binary search whatever the costs are.
type ledger struct {
	ring  []entry // its length is a power of two; entry 0 is at the log's head
	base  uint64  // the running total before the oldest entry
	total uint64  // the running total after the newest; totals wrap around, so only their differences have a meaning
}

type entry struct {
	at    int64
	id    uint64
	total uint64 // the running total after this entry
}

const smallestLedger = 4

// openLedger moves all entries to a ledger, unless there is one.
func (l *Log) openLedger() {
	if l.ledger != nil {
		return
	}
	opened := &ledger{ring: make([]entry, ringFor(l.count, 2*smallestLedger)/2), total: uint64(l.count)}
	for i := range int(l.count) {
		opened.ring[i] = entry{at: l.At(i), id: l.ID(i), total: uint64(i) + 1}
	}
	l.ring, l.head, l.tailLen, l.ledger = nil, 0, 0, opened
}

// entry is entry i of the ledger.
func (l *Log) entry(i int) *entry {
	ring := l.ledger.ring
	return &ring[(int(l.head)+i)&(len(ring)-1)]
}

// totalBefore is the running total before entry i, which may be Len.
func (l *Log) totalBefore(i int) uint64 {
	switch i {
	case 0:
		return l.ledger.base
	case int(l.count):
		return l.ledger.total
	}
	return l.entry(i - 1).total
}

func (l *Log) addToLedger(at int64, id uint64, cost int) {
	if int(l.count) == len(l.ledger.ring) {
		l.resizeLedger(2 * len(l.ledger.ring))
	}
	l.ledger.total += uint64(cost)
	l.count++
	*l.entry(int(l.count) - 1) = entry{at: at, id: id, total: l.ledger.total}
}

func (l *Log) resizeLedger(size int) {
	ring := make([]entry, size)
	for i := range int(l.count) {
		ring[i] = *l.entry(i)
	}
	l.ledger.ring, l.head = ring, 0
}

// updateEnds computes what the log repeats of its first and last entry in the ledger.
func (l *Log) updateEnds() {
	if l.count == 0 {
		l.dropFirst(0)
		return
	}
	l.ledger.total, l.oldest = l.entry(int(l.count)-1).total, l.entry(0).at
}

// Holds reports whether an entry has an ID that equals id in the bits of mask.
func (l *Log) Holds(id, mask uint64) bool {
	for i := range int(l.count) {
		if (l.ID(i)^id)&mask == 0 {
			return true
		}
	}
	return false
}

// find returns one more than the index of the entry with that ID, or 0 if there is none.
func (l *Log) find(id uint64) int {
	if l.ledger == nil {
		if newer := l.lastID - id; newer < uint64(l.count) {
			return int(l.count) - int(newer)
		}
		return 0
	}
	// Most IDs ascend, since takes get them in the order in which they are recorded.
	i := sort.Search(int(l.count), func(i int) bool { return l.entry(i).id >= id })
	if i < int(l.count) && l.entry(i).id == id && id != 0 {
		return i + 1
	}
	i = int(l.count)
	for i > 0 && (l.entry(i-1).id != id || id == 0) {
		i--
	}
	return i
}

// Insert adds an entry at its place in the order of instants, after those of the same instant. It does nothing if the
// log holds an entry with that ID.
func (l *Log) Insert(at int64, id uint64, cost int) {
	if l.Holds(id, ^uint64(0)) {
		return
	}
	l.openLedger()
	l.Add(at, id, cost)
	for i := int(l.count) - 1; i > 0 && l.At(i-1) > at; i-- {
		older, newer := l.entry(i-1), l.entry(i)
		end := newer.total
		*newer, older.at, older.id = *older, at, id
		newer.total, older.total = end, l.totalBefore(i-1)+uint64(cost)
	}
	l.updateEnds()
}

// Settle changes the cost of the entry with that ID, or removes the entry if the cost is 0. It does nothing if there is
// none. It takes time in proportion to the number of earlier or of later entries, whichever is less, which it updates.
func (l *Log) Settle(id uint64, cost int) {
	i := l.find(id) - 1
	switch {
	case i < 0 || cost == l.Cost(i):
		return
	case cost == 0 && l.count == 1:
		l.dropFirst(1)
		return
	}
	l.openLedger()
	change := uint64(cost) - (l.entry(i).total - l.totalBefore(i)) // a decrease wraps around, and so do the sums
	if i < int(l.count)/2 {
		l.settleOlder(i, cost, change)
	} else {
		l.settleNewer(i, cost, change)
	}
	l.updateEnds()
}

// settleOlder is Settle of entry i by changing the totals before it, of which only the differences have a meaning.
func (l *Log) settleOlder(i, cost int, change uint64) {
	l.ledger.base -= change
	for j := range i {
		l.entry(j).total -= change
	}
	if cost == 0 {
		for j := i; j > 0; j-- {
			*l.entry(j) = *l.entry(j - 1)
		}
		l.head++
		l.count--
	}
}

// settleNewer is Settle of entry i by changing the totals from it on.
func (l *Log) settleNewer(i, cost int, change uint64) {
	for j := i; j < int(l.count); j++ {
		l.entry(j).total += change
	}
	if cost == 0 {
		for j := i + 1; j < int(l.count); j++ {
			*l.entry(j - 1) = *l.entry(j)
		}
		l.count--
	}
}

// Renew moves the entries with these IDs to instant now, at the end of the log and in the order of the IDs, and adds
// those that are not there. Each costs 1 from now on. The IDs are in ascending order. No entry is after now.
func (l *Log) Renew(now int64, ids []uint64) {
	if len(ids) == 0 {
		return
	}
	l.openLedger()
	before := l.totalBefore(0)
	end, kept := before, 0
	for i := range int(l.count) {
		e := *l.entry(i)
		cost := e.total - before
		before = e.total
		if _, found := slices.BinarySearch(ids, e.id); found && e.id != 0 {
			continue
		}
		end += cost
		*l.entry(kept) = entry{e.at, e.id, end}
		kept++
	}
	l.count, l.ledger.total = uint32(kept), end
	for _, id := range ids {
		l.Add(now, id, 1)
	}
	l.updateEnds()
}

// Trim removes the oldest units until not more than the given number are left. An entry of which a part is removed gets
// the ID 0, so that it cannot be settled.
func (l *Log) Trim(units int) {
	out := l.Units(0) - units
	if out <= 0 {
		return
	}
	whole := 0
	for l.Units(0)-l.Units(whole+1) <= out {
		whole++
	}
	part := out - (l.Units(0) - l.Units(whole))
	if l.dropFirst(whole); part > 0 {
		l.ledger.base += uint64(part)
		l.entry(0).id = 0
	}
}
