// Package lease is the state of a lease, without a clock, a lock or I/O.
//
// A lease is units of a log that a process has taken ahead, as one ordinary entry, which the store stamps with its now.
// The process spends them without asking the store, and settles the entry to what it has used. The windows of all
// limits of the log are longer by d than those that are promised.
//
// No window W is ever over a quota, as docs/semantics.md shows, since each use is less than d after the entry: the
// process ends the lease 0.9 d after the instant before it sent the take, by the monotonic or by the wall clock,
// whichever comes first, and reads the clock after the unit was spent.
//
// A lease is closed before its sum is read, so no use comes later. Settlements have the sum, and not the difference, so
// that they may be executed twice, and each is sent when the one before has ended. A use whose cost rises ends the
// lease, so that the store is told at once.
package lease

import "time"

// Instant is what the clocks of a process read: the monotonic one and the wall clock, since any instants.
type Instant struct{ Mono, Wall time.Duration }

// End returns when a lease of length d ends whose take was sent after an instant.
func (i Instant) End(d time.Duration) Instant {
	d = d / 10 * 9
	return Instant{i.Mono + d, i.Wall + d}
}

// Reaches reports whether one of the clocks has reached an end.
func (i Instant) Reaches(end Instant) bool { return i.Mono >= end.Mono || i.Wall >= end.Wall }

// Lease is units that were taken ahead. The zero Lease is over, and there is nothing to settle.
type Lease struct {
	Units int // that were taken

	end     Instant
	left    int
	open    bool           // units may be spent
	stored  int            // units of the store's entry, as far as is known
	changed map[uint64]int // what uses cost that were changed
	more    int            // units that these cost above 1 each
}

// New returns a lease.
func New(units int, end Instant) Lease {
	return Lease{Units: units, end: end, left: units, open: true, stored: units}
}

// Spend takes a unit for a use, and then reads the clock. It takes none if none is left, or if the lease has ended.
func (l *Lease) Spend(clock func() Instant) bool {
	if !l.open || l.left == 0 {
		return false
	}
	l.left--
	if clock().Reaches(l.end) {
		l.left, l.open = l.left+1, false
		return false
	}
	return true
}

// Close ends the lease.
func (l *Lease) Close() { l.open = false }

// Ends reports whether the lease has ended at an instant.
func (l *Lease) Ends(now Instant) bool { return now.Reaches(l.end) }

// Left returns how many units were not spent.
func (l *Lease) Left() int { return l.left }

// Change changes the cost of a use. It reports whether the lease is to be settled for that. A unit that is given back
// may be spent again, while the lease is open. A use that was given back stays so.
func (l *Lease) Change(id uint64, units int) (due bool) {
	was, changed := l.changed[id]
	if !changed {
		was = 1
	}
	if was == 0 || was == units {
		return false
	}
	if l.changed == nil {
		l.changed = make(map[uint64]int)
	}
	l.changed[id] = units
	if units == 0 {
		l.left++
		units = 1
	}
	l.more += units - was
	return !l.open || l.more > 0
}

// Settlement closes the lease, and returns the units that the store was told before, and those that it is to be told.
// If they are the same, nothing is due.
func (l *Lease) Settlement() (was, sum int, due bool) {
	l.open = false
	was, l.stored = l.stored, l.Units-l.left+l.more
	return was, l.stored, was != l.stored
}
