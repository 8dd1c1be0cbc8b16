package core

import (
	"math/bits"
	"time"
)

// record is a log of instants: who was admitted when, oldest first. It knows neither locks nor clocks.
//
// Most logs hold takes of one unit each that nobody corrects. Of those it keeps the instant and nothing else: the
// youngest in itself, where a take looks anyway, and the others in a ring that grows and shrinks with what it
// holds. Their ids are numbers in turn. As soon as that does not say it all there is a [ledger], until the log is empty.
type record struct {
	ring   []int64 // length zero or a power of two
	ledger *ledger
	first  int64 // the oldest instant
	count  uint32
	head   uint32 // of the oldest entry in the ring, or in the ledger's
	fresh  uint8  // how many of young there are, which follow those in the ring
	next   uint64 // the id of the next take that brings none; without a ledger the entries' ids are those right before it
	young  [youngest]int64
}

const (
	youngest     = 7
	smallestRing = 16 // at least youngest, and a power of two
)

// at is the instant of entry i.
func (r *record) at(i uint32) int64 {
	if r.ledger != nil {
		return r.entry(i).at
	}
	if old := r.old(); i >= old {
		return r.young[i-old]
	}
	return r.ring[(r.head+i)&uint32(len(r.ring)-1)]
}

// old is how many entries are in the ring.
func (r *record) old() uint32 { return r.count - uint32(r.fresh) }

// id is that of entry i, or 0 if it is nobody's.
func (r *record) id(i uint32) uint64 {
	if r.ledger != nil {
		return r.entry(i).id
	}
	return r.next - uint64(r.count-i)
}

// units are those of entry i and all that follow.
func (r *record) units(i uint32) int {
	if r.ledger != nil {
		return int(r.ledger.total - r.before(i))
	}
	return int(r.count - i)
}

// cost is what entry i counts.
func (r *record) cost(i uint32) int { return r.units(i) - r.units(i+1) }

// drop forgets what left at cut or earlier.
func (r *record) drop(cut int64) {
	if n := r.since(cut); n > 0 {
		r.forget(n)
	}
}

// forget drops the oldest n entries.
func (r *record) forget(n uint32) {
	switch old := r.old(); {
	case n == r.count:
		r.count, r.head, r.fresh, r.ledger = 0, 0, 0, nil
		return
	case r.ledger != nil:
		r.ledger.gone = r.before(n)
		r.head += n
	case n > old:
		r.fresh = uint8(copy(r.young[:], r.young[n-old:r.fresh]))
		r.head = 0
	default:
		r.head += n
	}
	r.count -= n
	r.first = r.at(0)
}

// since is the first entry later than cut.
func (r *record) since(cut int64) uint32 {
	if r.count == 0 || r.first > cut {
		return 0
	}
	return r.search(cut)
}

func (r *record) search(cut int64) uint32 {
	// It is mostly near, as little leaves between one take and the next; and a large log does not fit into the cache.
	low, high := uint32(1), uint32(2)
	for high < r.count && r.at(high-1) <= cut {
		low, high = high, 2*high
	}
	high = min(high, r.count)
	for low < high {
		middle := (low + high) / 2
		if r.at(middle) > cut {
			high = middle
		} else {
			low = middle + 1
		}
	}
	return low
}

// leaving is the instant of the entry that holds the n-th unit, counted from
// entry first on. There are that many.
func (r *record) leaving(first uint32, n int) int64 {
	if r.ledger == nil {
		return r.at(first + uint32(n) - 1)
	}
	all := r.units(first)
	low, high := first, r.count-1
	for low < high {
		middle := (low + high) / 2
		if all-r.units(middle+1) >= n {
			high = middle
		} else {
			low = middle + 1
		}
	}
	return r.at(low)
}

// add is given 0 for the id of a take that has none, and returns the one it gets.
func (r *record) add(at int64, id uint64, cost int) uint64 {
	if id != 0 || cost != 1 {
		r.open()
	}
	if id == 0 {
		id = r.next
		r.next++
	}
	if r.count == 0 {
		r.first = at
	}
	if r.ledger != nil {
		r.enter(at, id, cost)
	} else {
		if r.fresh == youngest {
			r.age()
		}
		r.young[r.fresh] = at
		r.fresh++
		r.count++
	}
	return id
}

// age moves what was young into the ring, all of it at once: a ring is mostly not in the cache.
func (r *record) age() {
	old := r.old()
	if int(old)+youngest > len(r.ring) {
		r.resize(max(smallestRing, 2*len(r.ring)))
	}
	for i, at := range r.young {
		r.ring[(r.head+old+uint32(i))&uint32(len(r.ring)-1)] = at
	}
	r.fresh = 0
}

func (r *record) resize(size int) {
	ring := make([]int64, size)
	for i := range r.old() {
		ring[i] = r.at(i)
	}
	r.ring, r.head = ring, 0
}

// fit gives back a ring of which at most a quarter is used. It is called about once in the longest window: then a
// burst that comes again in each window is still there, and the ring keeps its size.
func (r *record) fit() {
	switch {
	case r.ledger != nil:
		r.ledger.fit(r)
	case 4*int(r.count) > len(r.ring):
	case r.old() == 0:
		r.ring = nil
	case len(r.ring) > smallestRing:
		r.resize(ringFor(r.count, smallestRing))
	}
}

// ringFor is the length of a ring that n entries fill to a half at most, and beyond the smallest to a quarter at least.
func ringFor(n uint32, smallest int) int {
	return max(smallest, 2<<bits.Len32(max(n, 1)-1))
}

// take answers t at instant now into a, which is zero, recording it as id's and as mode says: the window of a
// limit is (now-Window, now]. It returns the id, as add does, or 0.
func (r *record) take(now int64, id uint64, t *Take, mode Mode, a *Answer) uint64 {
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
		id = r.add(now, id, t.Cost)
		r.trim(max(largest, MaxRecorded))
	case a.Allowed && mode != ModePeek:
		id = r.add(now, id, t.Cost)
	case !a.Allowed && mode == ModeChargeDenied && !never:
		id = r.add(now, id, t.Cost)
		r.trim(max(largest, t.Bound))
		a.Retry = r.wait(now, t.Cost, deciding)
	default:
		if !a.Allowed {
			a.Retry = r.wait(now, t.Cost, deciding)
		}
		return 0
	}
	for i := range t.Limits {
		if a.State[i].Used == 0 {
			a.State[i].Reset = t.Limits[i].Window
		} else if mode != ModeCharge { // something may have been trimmed away
			_, a.State[i].Reset = r.view(now, t.Limits[i].Window)
		}
	}
	return id
}

// view is how many units a window holds, and when the oldest of them leaves.
func (r *record) view(now int64, window time.Duration) (used int, reset time.Duration) {
	first := r.since(now - int64(window))
	switch first {
	case r.count:
		return 0, 0
	case 0:
		return r.units(0), time.Duration(r.first + int64(window) - now)
	}
	return r.units(first), time.Duration(r.at(first) + int64(window) - now)
}

// wait is how long limits deny cost units: 0 if they do not, or always will.
func (r *record) wait(now int64, cost int, limits Limits) (wait time.Duration) {
	for i := range limits {
		limit := &limits[i]
		if cost > limit.Quota {
			return 0
		}
		first := r.since(now - int64(limit.Window))
		over := r.units(first) + cost - limit.Quota
		if over > 0 {
			wait = max(wait, time.Duration(r.leaving(first, over)+int64(limit.Window)-now))
		}
	}
	return wait
}
