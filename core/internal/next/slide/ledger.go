package slide

import (
	"cmp"
	"slices"
	"sort"
	"unsafe"
)

// ledger keeps the entries of a [Log] with their costs and IDs. An entry that is removed stays in its place, at a cost
// of 0, until it is the oldest or newest one, or the ring is full. So nothing moves when an entry is settled.
type ledger struct {
	ring   []Entry // its length is a power of two; entry 0 is at the log's head
	units  int     // the cost of all entries
	search *search // of a ring that is larger than a block, or nil
}

// search is what finds entries of a large ledger.
type search struct {
	sums  [][]int  // the units in each block of places, in each block of such blocks, and so on
	index []uint32 // a hash table of places by ID, which begin at 1; nil until an ID is not found by binary search
	used  int      // cells of the index
}

const (
	smallestLedger = 4
	blockBits      = 6
	block          = 1 << blockBits
)

func (g *ledger) bytes() int {
	n := int(unsafe.Sizeof(*g)) + len(g.ring)*int(unsafe.Sizeof(Entry{}))
	if s := g.search; s != nil {
		n += int(unsafe.Sizeof(*s)) + len(s.index)*int(unsafe.Sizeof(s.index[0]))
		for _, sums := range s.sums {
			n += int(unsafe.Sizeof(sums)) + len(sums)*int(unsafe.Sizeof(sums[0]))
		}
	}
	return n
}

// openLedger moves all entries to a ledger, unless there is one.
func (l *Log) openLedger() {
	if l.ledger != nil {
		return
	}
	opened := &ledger{ring: make([]Entry, ringFor(l.count, 2*smallestLedger)/2)}
	i := 0
	for e := range l.Entries() {
		opened.ring[i] = e
		i++
	}
	l.ring, l.head, l.tailLen, l.ledger = nil, 0, 0, opened
	l.sum()
}

// entry is entry i of the ledger, which may have been removed.
func (l *Log) entry(i int) *Entry { return &l.ledger.ring[l.place(i)] }

// place is where entry i is in the ring of the ledger.
func (l *Log) place(i int) int { return (int(l.head) + i) & (len(l.ledger.ring) - 1) }

// sum computes the sums of the ledger anew.
func (l *Log) sum() {
	g := l.ledger
	g.units, g.search = 0, nil
	if len(g.ring) > block {
		g.search = new(search)
		for size := len(g.ring) >> blockBits; size > 1; size >>= blockBits {
			g.search.sums = append(g.search.sums, make([]int, size))
		}
	}
	for i := range int(l.count) {
		g.add(l.place(i), l.entry(i).Cost)
	}
}

// add adds units to the sums of a place.
func (g *ledger) add(place, units int) {
	g.units += units
	if g.search != nil {
		for _, sums := range g.search.sums {
			place >>= blockBits
			sums[place] += units
		}
	}
}

// unitsOf returns the units of the block of a level at a place, where level 0 has the entries themselves.
func (g *ledger) unitsOf(level, place int) int {
	if level == 0 {
		return g.ring[place].Cost
	}
	return g.search.sums[level-1][place>>(level*blockBits)]
}

// unitAt is UnitAt. It passes blocks as large as possible, and then looks into the one that has the unit. Places before
// the oldest entry and after the newest may have any cost, but it does not come to these.
func (g *ledger) unitAt(place, n int) int64 {
	level, levels := 0, 0
	if g.search != nil {
		levels = len(g.search.sums)
	}
	for {
		for level < levels && place&(1<<((level+1)*blockBits)-1) == 0 {
			level++
		}
		place &= len(g.ring) - 1
		units := g.unitsOf(level, place)
		if units >= n {
			break
		}
		n -= units
		place += 1 << (level * blockBits)
	}
	for ; level > 0; level-- {
		for units := g.unitsOf(level-1, place); units < n; units = g.unitsOf(level-1, place) {
			n -= units
			place += 1 << ((level - 1) * blockBits)
		}
	}
	return g.ring[place].At
}

func (l *Log) addToLedger(e Entry) {
	g := l.ledger
	if int(l.count) == len(g.ring) {
		l.resizeLedger(2 * smallestLedger)
	}
	l.count++
	place := l.place(int(l.count) - 1)
	g.ring[place] = e
	g.add(place, e.Cost)
	if g.search != nil && g.search.index != nil {
		g.search.insert(e.ID, place)
	}
}

// resizeLedger moves the entries, without those that were removed, to the beginning of a ring for their number.
func (l *Log) resizeLedger(smallest int) {
	n := uint32(0)
	for range l.Entries() {
		n++
	}
	ring := make([]Entry, 0, ringFor(n, smallest))
	for e := range l.Entries() {
		ring = append(ring, e)
	}
	l.ledger.ring, l.head, l.count = ring[:cap(ring)], 0, n
	l.sum()
}

// dropFromLedger removes the oldest n entries, fewer than all.
func (l *Log) dropFromLedger(n int) {
	for g, left := l.ledger, n; left > 0; {
		place, level := l.place(n-left), 0
		if g.search != nil && place&(block-1) == 0 && left >= block {
			level = 1
		}
		g.add(place, -g.unitsOf(level, place))
		left -= 1 << (level * blockBits)
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

// Settle changes the cost of the entry with that ID, or removes the entry if the cost is 0. It does nothing if there is
// none.
func (l *Log) Settle(id uint64, cost int) {
	i := l.find(id)
	switch {
	case i < 0 || l.ledger == nil && cost == 1:
		return
	case i == 0 && cost == 0:
		l.dropFirst(1)
		return
	}
	l.openLedger()
	e := l.entry(i)
	l.ledger.add(l.place(i), cost-e.Cost)
	e.Cost = cost
	l.dropRemoved()
}

// find returns the index of the entry with that ID, or -1 if there is none.
func (l *Log) find(id uint64) int {
	if l.ledger == nil {
		if newer := l.lastID - id; newer < uint64(l.count) {
			return int(l.count) - 1 - int(newer)
		}
		return -1
	}
	has := func(i int) bool { e := l.entry(i); return e.ID == id && e.Cost > 0 }
	// Most IDs ascend, since takes get them in the order in which they are recorded.
	i := sort.Search(int(l.count), func(i int) bool { return l.entry(i).ID >= id })
	switch {
	case id == 0:
		return -1
	case i < int(l.count) && has(i):
		return i
	case l.ledger.search != nil:
		return l.indexed(id, has)
	}
	i = int(l.count) - 1
	for i >= 0 && !has(i) {
		i--
	}
	return i
}

// indexed is find by the index, which it makes if there is none.
func (l *Log) indexed(id uint64, has func(i int) bool) int {
	s, mask := l.ledger.search, len(l.ledger.ring)-1
	if s.index == nil {
		s.index, s.used = make([]uint32, 2*len(l.ledger.ring)), 0
		for i := range int(l.count) {
			s.insert(l.entry(i).ID, l.place(i))
		}
	}
	for cell := s.cell(id); s.index[cell] != 0; cell = (cell + 1) & (len(s.index) - 1) {
		if i := (int(s.index[cell]) - 1 - int(l.head)) & mask; i < int(l.count) && has(i) {
			return i
		}
	}
	return -1
}

// cell is where the search for an ID begins. The golden ratio spreads IDs that follow each other.
func (s *search) cell(id uint64) int { return int(id*0x9e3779b97f4a7c15>>32) & (len(s.index) - 1) }

// insert adds a place to the index, where it stays when its entry has left. An index that is three quarters full is
// made anew when it is needed.
func (s *search) insert(id uint64, place int) {
	if s.used++; 4*s.used > 3*len(s.index) {
		s.index = nil
		return
	}
	cell := s.cell(id)
	for s.index[cell] != 0 {
		cell = (cell + 1) & (len(s.index) - 1)
	}
	s.index[cell] = uint32(place) + 1
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
	if sorted {
		return
	}
	l.openLedger()
	l.resizeLedger(2 * smallestLedger)
	slices.SortStableFunc(l.ledger.ring[:l.count], func(a, b Entry) int { return cmp.Compare(a.At, b.At) })
	l.sum()
	l.oldest = l.entry(0).At
}
