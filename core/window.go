package core

import "time"

// record is a log of instants: who was admitted when, oldest first, in a ring
// that grows and shrinks with what it holds. It knows neither locks nor clocks.
//
// Entries carry a running total of units, so that "how many units since" and
// "when do so many leave" are binary searches whatever the costs were.
type record struct {
	ring  []entry // length zero or a power of two
	head  uint32  // of the oldest entry in ring
	count uint32  // entries held
	gone  uint64  // the running total before the oldest entry
	peak  uint32  // most entries held since the ring was last resized or looked at
}

// entry is one admitted take.
type entry struct {
	at    int64  // nanoseconds
	id    uint64 // whose it is
	total uint64 // units up to and including this entry
}

const smallestRing = 4

func (r *record) at(i uint32) *entry {
	return &r.ring[(r.head+i)&uint32(len(r.ring)-1)]
}

// before is the running total before entry i, which may be count.
func (r *record) before(i uint32) uint64 {
	if i == 0 {
		return r.gone
	}
	return r.at(i - 1).total
}

// drop forgets what left at cut or earlier.
func (r *record) drop(cut int64) {
	n := r.since(cut)
	if n == 0 {
		return
	}
	r.gone = r.before(n)
	r.head = (r.head + n) & uint32(len(r.ring)-1)
	r.count -= n
}

// since is the first entry later than cut.
func (r *record) since(cut int64) uint32 {
	if r.count == 0 || r.ring[r.head].at > cut {
		return 0
	}
	low, high := uint32(1), r.count
	for low < high {
		middle := (low + high) / 2
		if r.at(middle).at > cut {
			high = middle
		} else {
			low = middle + 1
		}
	}
	return low
}

// leaving is the instant of the entry that holds the n-th unit, counted from
// entry first on. There are that many.
func (r *record) leaving(first uint32, n uint64) int64 {
	base := r.before(first)
	low, high := first, r.count-1
	for low < high {
		middle := (low + high) / 2
		if r.at(middle).total-base >= n {
			high = middle
		} else {
			low = middle + 1
		}
	}
	return r.at(low).at
}

// holds reports whether one of the entries is id's.
func (r *record) holds(id uint64) bool {
	for i := range r.count {
		if r.at(i).id == id {
			return true
		}
	}
	return false
}

func (r *record) add(at int64, id uint64, cost int) {
	if int(r.count) == len(r.ring) {
		r.resize(max(smallestRing, 2*r.count))
	}
	total := r.before(r.count) + uint64(cost)
	r.count++
	*r.at(r.count - 1) = entry{at: at, id: id, total: total}
	r.peak = max(r.peak, r.count)
}

// fit gives memory back when the ring was at most a quarter full since the
// last call. It is called rarely, so that bursts do not resize on each window.
func (r *record) fit() {
	if len(r.ring) > smallestRing && int(4*r.peak) <= len(r.ring) {
		r.resize(uint32(len(r.ring) / 2))
	}
	r.peak = r.count
}

func (r *record) resize(size uint32) {
	ring := make([]entry, size)
	for i := range r.count {
		ring[i] = *r.at(i)
	}
	r.ring, r.head = ring, 0
}

// take answers t at instant now, recording it as id's if it is admitted: the window of a
// limit is (now-Window, now].
func (r *record) take(now int64, id uint64, t *Take) Answer {
	a := Answer{Allowed: true}
	never := false
	for i := range t.Limits {
		limit, state := &t.Limits[i], &a.State[i]
		window := int64(limit.Window)
		first := r.since(now - window)
		used := int(r.before(r.count) - r.before(first))
		state.Used = used
		if used > 0 {
			state.Reset = time.Duration(r.at(first).at + window - now)
		}
		over := used + t.Cost - limit.Quota
		if over <= 0 {
			continue
		}
		a.Allowed = false
		if never = never || t.Cost > limit.Quota; !never {
			a.Retry = max(a.Retry, time.Duration(r.leaving(first, uint64(over))+window-now))
		}
	}
	if never {
		a.Retry = 0
	}
	if !a.Allowed || t.Peek {
		return a
	}
	r.add(now, id, t.Cost)
	for i := range t.Limits {
		if a.State[i].Used == 0 {
			a.State[i].Reset = t.Limits[i].Window
		}
	}
	return a
}
