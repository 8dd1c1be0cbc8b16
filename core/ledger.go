package core

// ledger is what a [record] needs as well where takes have costs, ids of their own, or corrections.
//
// Entries carry a running total of units, so that "how many units since" and
// "when do so many leave" are binary searches whatever the costs were.
type ledger struct {
	ring  []entry // a power of two of them, which begin at the record's head
	gone  uint64  // the running total before the oldest entry
	total uint64  // ... and after the youngest; totals wrap around, so only their differences mean something
}

// entry is one admitted take.
type entry struct {
	at    int64  // nanoseconds
	id    uint64 // whose it is
	total uint64 // units up to and including this entry
}

const smallestLedger = 4

// open makes a ledger of what is there, unless there is one.
func (r *record) open() {
	if r.ledger != nil {
		return
	}
	l := &ledger{ring: make([]entry, smallestLedger), total: uint64(r.count)}
	for uint32(len(l.ring)) < r.count {
		l.ring = make([]entry, 2*len(l.ring))
	}
	for i := range r.count {
		l.ring[i] = entry{at: r.at(i), id: r.id(i), total: uint64(i) + 1}
	}
	r.ring, r.head, r.fresh, r.ledger = nil, 0, 0, l
}

func (r *record) entry(i uint32) *entry {
	ring := r.ledger.ring
	return &ring[(r.head+i)&uint32(len(ring)-1)]
}

// before is the running total before entry i, which may be count.
func (r *record) before(i uint32) uint64 {
	switch i {
	case 0:
		return r.ledger.gone
	case r.count:
		return r.ledger.total
	}
	return r.entry(i - 1).total
}

func (r *record) enter(at int64, id uint64, cost int) {
	l := r.ledger
	if int(r.count) == len(l.ring) {
		l.resize(r, 2*len(l.ring))
	}
	l.total += uint64(cost)
	r.count++
	*r.entry(r.count - 1) = entry{at: at, id: id, total: l.total}
}

func (l *ledger) fit(r *record) {
	if len(l.ring) > smallestLedger && 4*int(r.count) <= len(l.ring) {
		l.resize(r, ringFor(r.count, smallestLedger))
	}
}

func (l *ledger) resize(r *record, size int) {
	ring := make([]entry, size)
	for i := range r.count {
		ring[i] = *r.entry(i)
	}
	l.ring, r.head = ring, 0
}

// ends looks anew at the entries at both ends.
func (r *record) ends() {
	if r.count == 0 {
		r.forget(0)
		return
	}
	r.ledger.total, r.first = r.entry(r.count-1).total, r.entry(0).at
}

// holds reports whether the bits of mask in one of the entries' ids are those of id.
func (r *record) holds(id, mask uint64) bool {
	for i := range r.count {
		if (r.id(i)^id)&mask == 0 {
			return true
		}
	}
	return false
}

// find is how many entries there are up to the one with that id, or 0.
func (r *record) find(id uint64) uint32 {
	if r.ledger == nil {
		if back := r.next - id; 1 <= back && back <= uint64(r.count) {
			return r.count - uint32(back) + 1
		}
		return 0
	}
	i := r.count
	for i > 0 && (r.entry(i-1).id != id || id == 0) {
		i--
	}
	return i
}

// insert adds an entry among others, unless it is there.
func (r *record) insert(at int64, id uint64, cost int) {
	if r.holds(id, ^uint64(0)) {
		return
	}
	r.open()
	r.add(at, id, cost)
	for i := r.count - 1; i > 0 && r.at(i-1) > at; i-- {
		older, younger := r.entry(i-1), r.entry(i)
		end := younger.total
		*younger, older.at, older.id = *older, at, id
		younger.total, older.total = end, r.before(i-1)+uint64(cost)
	}
	r.ends()
}

// settle makes id's entry cost so many units, or removes it. What follows it is
// moved, so that this costs as much as there are younger entries.
func (r *record) settle(id uint64, cost int) {
	i := r.find(id)
	switch {
	case i == 0 || cost == r.cost(i-1):
		return
	case cost == 0 && r.count == 1:
		r.forget(1)
		return
	}
	r.open()
	change := uint64(cost) - (r.entry(i-1).total - r.before(i-1)) // wraps where it is negative, and so do the sums
	for j := i - 1; j < r.count; j++ {
		r.entry(j).total += change
	}
	if cost == 0 {
		for j := i; j < r.count; j++ {
			*r.entry(j - 1) = *r.entry(j)
		}
		r.count--
	}
	r.ends()
}

// trim forgets the oldest units beyond so many. An entry of which only a part is left
// is nobody's any more: it cannot be settled.
func (r *record) trim(units int) {
	out := r.units(0) - units
	if out <= 0 {
		return
	}
	whole := uint32(0)
	for r.units(0)-r.units(whole+1) <= out {
		whole++
	}
	part := out - (r.units(0) - r.units(whole))
	if r.forget(whole); part > 0 {
		r.ledger.gone += uint64(part)
		r.entry(0).id = 0
	}
}
