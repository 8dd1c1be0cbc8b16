package slide

import (
	"cmp"
	"slices"
	"sort"
)

// ledger keeps the entries of a [Log] with their costs and IDs. An entry that is removed stays in its place, at a cost
// of 0, until it is the oldest or newest one, or the ring is full. So nothing moves when an entry is settled.
type ledger struct {
	ring   []Entry // its length is a power of two; entry 0 is at the log's head, and where no entry is, the cost is 0
	units  int     // the cost of all entries
	search *search // or nil
}

// search finds units and entries in a ring that is larger than a block. Either part is made when it is first needed,
// and is lost when the entries move to another ring: a log that denies nobody has none to keep up to date.
type search struct {
	tree  []int             // of Fenwick: the units in each block of places
	index map[uint64]uint32 // places by ID, of removed entries too; needed when a binary search has not found an ID
}

const (
	smallestLedger = 4
	block          = 64
)

// openLedger moves all entries to a ledger, unless there is one.
func (l *Log) openLedger() {
	if l.ledger == nil {
		l.refill(ringFor(l.count, 2*smallestLedger) / 2)
	}
}

// refill moves the entries, without those that were removed, to the beginning of a ring of that size.
func (l *Log) refill(size int) {
	ring, units := make([]Entry, 0, size), 0
	for i := range int(l.count) { // twice as fast as Entries
		if e := l.get(i); e.Cost > 0 {
			ring, units = append(ring, e), units+e.Cost
		}
	}
	l.count = uint32(len(ring))
	l.ring, l.head, l.tailLen, l.ledger = nil, 0, 0, &ledger{ring: ring[:size], units: units}
}

// resizeLedger moves the entries to a ring for their number.
func (l *Log) resizeLedger(smallest int) {
	n := uint32(0)
	for i := range l.ledger.ring { // where no entry is, the cost is 0
		if l.ledger.ring[i].Cost > 0 {
			n++
		}
	}
	l.refill(ringFor(n, smallest))
}

// isLarge reports whether the ring is searched with more than itself.
func (g *ledger) isLarge() bool { return len(g.ring) > block }

// searched returns the search of a large ring.
func (g *ledger) searched() *search {
	if g.search == nil {
		g.search = new(search)
	}
	return g.search
}

// sums returns the tree of a large ring.
func (g *ledger) sums() []int {
	s := g.searched()
	if s.tree == nil {
		s.tree = make([]int, len(g.ring)/block)
		for place := range g.ring {
			s.tree[place/block] += g.ring[place].Cost
		}
		for i, units := range s.tree {
			if parent := i | (i + 1); parent < len(s.tree) {
				s.tree[parent] += units
			}
		}
	}
	return s.tree
}

// place is where entry i is in the ring of the ledger.
func (l *Log) place(i int) int { return (int(l.head) + i) & (len(l.ledger.ring) - 1) }

// entry is entry i of the ledger, which may have been removed.
func (l *Log) entry(i int) *Entry { return &l.ledger.ring[l.place(i)] }

// add adds units to the sums of a place.
func (g *ledger) add(place, units int) {
	if g.units += units; g.search == nil {
		return
	}
	for i := place / block; i < len(g.search.tree); i |= i + 1 {
		g.search.tree[i] += units
	}
}

// unitAt is UnitAt. The places before the head have the newest entries, if any.
func (g *ledger) unitAt(head, n int) int64 {
	if n += g.before(head); n > g.units {
		n -= g.units
	}
	place := 0
	if g.isLarge() {
		tree := g.sums()
		for step := len(tree) / 2; step > 0; step /= 2 {
			if units := tree[place+step-1]; units < n {
				place, n = place+step, n-units
			}
		}
		place *= block
	}
	for ; g.ring[place].Cost < n; place++ {
		n -= g.ring[place].Cost
	}
	return g.ring[place].At
}

// before returns the units in the places of the ring before that one.
func (g *ledger) before(place int) (units int) {
	for _, e := range g.ring[place/block*block : place] {
		units += e.Cost
	}
	if g.isLarge() {
		tree := g.sums()
		for i := place / block; i > 0; i &= i - 1 {
			units += tree[i-1]
		}
	}
	return units
}

func (l *Log) addToLedger(e Entry) {
	if int(l.count) == len(l.ledger.ring) {
		l.resizeLedger(2 * smallestLedger)
	}
	g, place := l.ledger, l.place(int(l.count))
	l.count++
	g.ring[place] = e
	g.add(place, e.Cost)
	if s := g.search; s != nil && s.index != nil {
		if s.index[e.ID] = uint32(place); len(s.index) > 2*len(g.ring) {
			s.index = nil
		}
	}
}

// dropFromLedger removes the oldest n entries, fewer than all.
func (l *Log) dropFromLedger(n int) {
	units := 0
	for i := range n {
		place := l.place(i)
		e := &l.ledger.ring[place]
		units, e.Cost = units+e.Cost, 0
		if i == n-1 || place%block == block-1 {
			l.ledger.add(place, -units)
			units = 0
		}
	}
	l.head += uint32(n)
	l.count -= uint32(n)
	l.dropRemoved()
}

// dropRemoved drops removed entries until the first and the last one are none.
func (l *Log) dropRemoved() {
	for l.entry(0).Cost == 0 {
		l.head++
		l.count--
	}
	for l.entry(int(l.count)-1).Cost == 0 {
		l.count--
	}
	l.oldest = l.entry(0).At
}

// Settle changes the cost of the entry with that ID, or removes the entry if the cost is 0. It reports whether there is
// one.
func (l *Log) Settle(id uint64, cost int) (found bool) {
	i := l.find(id)
	switch {
	case i < 0 || l.ledger == nil && cost == 1:
		return i >= 0
	case i == 0 && cost == 0:
		l.dropFirst(1)
		return true
	}
	l.openLedger()
	e := l.entry(i)
	l.ledger.add(l.place(i), cost-e.Cost)
	e.Cost = cost
	l.dropRemoved()
	return true
}

// find returns the index of the entry with that ID, or -1 if there is none.
func (l *Log) find(id uint64) int {
	if l.ledger == nil {
		if newer := l.lastID - id; newer < uint64(l.count) {
			return int(l.count) - 1 - int(newer)
		}
		return -1
	}
	has := func(i int) bool { return l.entry(i).ID == id && l.entry(i).Cost > 0 }
	// Most IDs ascend, since takes get them in the order in which they are recorded.
	i := sort.Search(int(l.count), func(i int) bool { return l.entry(i).ID >= id })
	switch {
	case i < int(l.count) && has(i):
		return i
	case l.ledger.isLarge():
		if i = l.indexed(id); i < int(l.count) && has(i) {
			return i
		}
		return -1
	}
	i = int(l.count) - 1
	for i >= 0 && !has(i) {
		i--
	}
	return i
}

// indexed returns the index that the entry with that ID has, if there is one.
func (l *Log) indexed(id uint64) int {
	s := l.ledger.searched()
	if s.index == nil {
		s.index = make(map[uint64]uint32, l.count)
		for i := range int(l.count) {
			if e := l.entry(i); e.Cost > 0 {
				s.index[e.ID] = uint32(l.place(i))
			}
		}
	}
	return (int(s.index[id]) - int(l.head)) & (len(l.ledger.ring) - 1)
}

// Renew moves the entries with these IDs to instant now, at the end of the log and in the order of the IDs, and adds
// those that are not there. Each costs 1 from now on. No entry is after now.
func (l *Log) Renew(now int64, ids []uint64) {
	for _, id := range ids {
		l.Settle(id, 0)
		l.Add(now, id, 1)
	}
}

// Merge adds entries at their instants, after those of the same instant, and settles those whose ID the log holds.
func (l *Log) Merge(entries []Entry) {
	sorted := true
	for _, e := range entries {
		switch known := l.find(e.ID) >= 0; {
		case known:
			l.Settle(e.ID, e.Cost)
		case e.Cost > 0:
			sorted = sorted && (l.count == 0 || l.Newest() <= e.At)
			l.Add(e.At, e.ID, e.Cost)
		}
	}
	if !sorted {
		l.resizeLedger(2 * smallestLedger)
		slices.SortStableFunc(l.ledger.ring[:l.count], func(a, b Entry) int { return cmp.Compare(a.At, b.At) })
		l.oldest = l.entry(0).At
	}
}
