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
	total uint64  // ... and after the youngest
	first int64   // the oldest entry's instant: with these two a take mostly need not look into the ring
	peak  uint32  // most entries held since the ring was last resized or looked at

	small [smallestRing]entry // the first ring: most keys never need another
}

// entry is one admitted take.
type entry struct {
	at    int64  // nanoseconds
	id    uint64 // whose it is
	total uint64 // units up to and including this entry
}

const smallestRing = 2

func (r *record) at(i uint32) *entry {
	return &r.ring[(r.head+i)&uint32(len(r.ring)-1)]
}

// before is the running total before entry i, which may be count.
func (r *record) before(i uint32) uint64 {
	switch i {
	case 0:
		return r.gone
	case r.count:
		return r.total
	}
	return r.at(i - 1).total
}

// ends looks anew at the entries at both ends.
func (r *record) ends() {
	if r.total = r.gone; r.count > 0 {
		r.total, r.first = r.at(r.count-1).total, r.at(0).at
	}
}

// drop forgets what left at cut or earlier.
func (r *record) drop(cut int64) {
	n := r.since(cut)
	if n == 0 {
		return
	}
	r.gone = r.before(n)
	r.head = (r.head + n) & uint32(len(r.ring)-1)
	if r.count -= n; r.count > 0 {
		r.first = r.at(0).at
	}
}

// since is the first entry later than cut.
func (r *record) since(cut int64) uint32 {
	if r.count == 0 || r.first > cut {
		return 0
	}
	// It is mostly near, as little leaves between one take and the next; and a large log does not fit into the cache.
	low, high := uint32(1), uint32(2)
	for high < r.count && r.at(high-1).at <= cut {
		low, high = high, 2*high
	}
	high = min(high, r.count)
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

// holds reports whether the bits of mask in one of the entries' ids are those of id.
func (r *record) holds(id, mask uint64) bool {
	for i := range r.count {
		if (r.at(i).id^id)&mask == 0 {
			return true
		}
	}
	return false
}

// insert adds an entry among others, unless it is there.
func (r *record) insert(at int64, id uint64, cost int) {
	if r.holds(id, ^uint64(0)) {
		return
	}
	r.add(at, id, cost)
	for i := r.count - 1; i > 0 && r.at(i-1).at > at; i-- {
		older, younger := r.at(i-1), r.at(i)
		end := younger.total
		*younger, older.at, older.id = *older, at, id
		younger.total, older.total = end, r.before(i-1)+uint64(cost)
	}
	r.ends()
}

func (r *record) add(at int64, id uint64, cost int) {
	if int(r.count) == len(r.ring) {
		r.resize(max(smallestRing, 2*r.count))
	}
	if r.total = r.before(r.count) + uint64(cost); r.count == 0 {
		r.first = at
	}
	r.count++
	*r.at(r.count - 1) = entry{at: at, id: id, total: r.total}
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
	ring := r.small[:]
	if size > smallestRing {
		ring = make([]entry, size)
	}
	for i := range r.count {
		ring[i] = *r.at(i)
	}
	r.ring, r.head = ring, 0
}

// settle makes id's entry cost so many units, or removes it. What follows it is
// moved, so that this costs as much as there are younger entries.
func (r *record) settle(id uint64, cost int) {
	for i := r.count; i > 0; i-- {
		e := r.at(i - 1)
		if e.id != id {
			continue
		}
		change := uint64(cost) - (e.total - r.before(i-1)) // wraps where it is negative, and so do the sums
		for j := i - 1; j < r.count; j++ {
			r.at(j).total += change
		}
		if cost == 0 {
			for j := i; j < r.count; j++ {
				*r.at(j - 1) = *r.at(j)
			}
			r.count--
		}
		r.ends()
		return
	}
}

// trim forgets the oldest units beyond so many. An entry of which only a part is left
// is nobody's any more: it cannot be settled.
func (r *record) trim(units int) {
	held := r.total - r.gone
	if held <= uint64(units) {
		return
	}
	base, out := r.gone, held-uint64(units)
	edge := base
	for r.at(0).total-base <= out { // differences, because totals wrap around
		edge = r.at(0).total
		r.head = (r.head + 1) & uint32(len(r.ring)-1)
		r.count--
	}
	if r.gone = base + out; r.gone != edge {
		r.at(0).id = 0
	}
	r.ends()
}

// take answers t at instant now into a, which is zero, recording it as id's and as mode says: the window of a
// limit is (now-Window, now].
func (r *record) take(now int64, id uint64, t *Take, mode Mode, a *Answer) {
	a.Allowed = true
	deciding := t.Limits[:len(t.Limits)-t.Shadow]
	largest, never := 0, false
	for i := range t.Limits {
		quota, state := t.Limits[i].Quota, &a.State[i]
		state.Used, state.Reset = r.view(now, t.Limits[i].Window)
		if i < len(deciding) {
			a.Allowed = a.Allowed && state.Used+t.Cost <= quota
			largest, never = max(largest, quota), never || t.Cost > quota
		}
	}
	if t.Shadow > 0 {
		a.Shadow = r.wait(now, t.Cost, t.Limits[len(deciding):])
	}
	switch {
	case mode == ModeRecord:
		a.Allowed = true
		r.add(now, id, t.Cost)
		r.trim(max(largest, MaxRecorded))
	case a.Allowed && mode != ModePeek:
		r.add(now, id, t.Cost)
	case !a.Allowed && mode == ModeChargeDenied && !never:
		r.add(now, id, t.Cost)
		r.trim(max(largest, t.Bound))
		a.Retry = r.wait(now, t.Cost, deciding)
	default:
		if !a.Allowed {
			a.Retry = r.wait(now, t.Cost, deciding)
		}
		return
	}
	for i := range t.Limits {
		if a.State[i].Used == 0 {
			a.State[i].Reset = t.Limits[i].Window
		} else if mode != ModeCharge { // something may have been trimmed away
			_, a.State[i].Reset = r.view(now, t.Limits[i].Window)
		}
	}
}

// view is how many units a window holds, and when the oldest of them leaves.
func (r *record) view(now int64, window time.Duration) (used int, reset time.Duration) {
	first := r.since(now - int64(window))
	switch first {
	case r.count:
		return 0, 0
	case 0:
		return int(r.total - r.gone), time.Duration(r.first + int64(window) - now)
	}
	return int(r.total - r.before(first)), time.Duration(r.at(first).at + int64(window) - now)
}

// wait is how long limits deny cost units: 0 if they do not, or always will.
func (r *record) wait(now int64, cost int, limits Limits) (wait time.Duration) {
	for i := range limits {
		limit := &limits[i]
		if cost > limit.Quota {
			return 0
		}
		first := r.since(now - int64(limit.Window))
		over := int(r.total-r.before(first)) + cost - limit.Quota
		if over > 0 {
			wait = max(wait, time.Duration(r.leaving(first, uint64(over))+int64(limit.Window)-now))
		}
	}
	return wait
}
