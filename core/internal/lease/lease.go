// Package lease is the state of a lease, without a clock, a lock or I/O.
//
// A lease is units of a log that a process has booked ahead: one entry of the log, stamped at the end of the lease by
// the store's clock, its now + d. The process spends them without asking the store, and settles what it has used.
//
// No window is ever over a quota. Each use is at or after the booking, and at or before its stamp:
//
//   - The process ends the lease 0.9 d after the instant before it first sent the booking. The store executes it later,
//     so the lease ends before the stamp, whatever the network does. It ends by the monotonic or by the wall clock,
//     whichever comes first, and the clock is read after the units were taken.
//   - A booking is admitted if its units fit each window that ends now, in which all entries count that are younger
//     than the window, those stamped after now as well. So do all other takes.
//
// Consider a window (t-W, t] of uses, and the last booking or take with uses in it. When it was admitted, at s <= t,
// all others with uses there had their entries, with stamps after t-W >= s-W, so they counted: the sum fitted.
//
// Settling gives back what was not spent, and moves the stamp to the store's now, if that is earlier. This is right
// because the lease is closed before its sum is read: no use comes later. Settlements of a lease have the sum, and
// not the difference, so that they may be executed twice; each is sent when the one before was answered.
package lease

import "time"

// Instant is what the clocks of a process read: the monotonic one and the wall clock, since any instants.
type Instant struct{ Mono, Wall time.Duration }

// End returns when a lease ends whose booking was first sent after an instant.
func (i Instant) End(d time.Duration) Instant {
	d = d / 10 * 9
	return Instant{i.Mono + d, i.Wall + d}
}

// Reaches reports whether one of the clocks has reached an end.
func (i Instant) Reaches(end Instant) bool { return i.Mono >= end.Mono || i.Wall >= end.Wall }

// Lease is one booking. The zero Lease is over, and there is nothing to settle.
type Lease struct {
	Units int // that were booked

	end     Instant
	left    int
	open    bool           // units may be spent
	sending bool           // a settlement is on its way
	sent    int            // its units
	stored  int            // units of the store's entry, or -1 before the first settlement
	changed map[uint64]use // the uses whose cost has changed
}

// use is what a request has of a lease after its cost was changed.
type use struct {
	in     int  // units of the lease
	beyond int  // units that have an entry of their own
	stored int  // units that this entry has in the store, or -1 if that is not known
	undone bool // for good
}

// New returns the lease of a booking.
func New(units int, end Instant) Lease {
	return Lease{Units: units, end: end, left: units, open: true, stored: -1}
}

// Spend takes units for a use, and then reads the clock. It takes none if so many are not left, or if the lease has
// ended.
func (l *Lease) Spend(units int, clock func() Instant) bool {
	if !l.open || units > l.left {
		return false
	}
	l.left -= units
	if clock().Reaches(l.end) {
		l.left, l.open = l.left+units, false
		return false
	}
	return true
}

// Return gives back units that were taken for a request which was then not admitted.
func (l *Lease) Return(units int) { l.left += units }

// IsOpen reports whether the lease was not closed. It may have ended nevertheless.
func (l *Lease) IsOpen() bool { return l.open }

// Ends reports whether the lease has ended at an instant.
func (l *Lease) Ends(now Instant) bool { return now.Reaches(l.end) }

// Left returns how many units were not spent.
func (l *Lease) Left() int { return l.left }

// Change changes the cost of a use, which was that many units at first. It takes more units from the lease while this
// is open. What they do not suffice for is beyond the lease, and needs an entry of its own: tell reports whether the
// store has to be told the units of that entry. After the lease was closed, there may be another settlement. A use that
// was undone stays undone.
func (l *Lease) Change(id uint64, first, units int) (beyond int, tell bool) {
	u, ok := l.changed[id]
	if !ok {
		u.in = first
	}
	if u.undone {
		return 0, u.stored != 0
	}
	most := u.in
	if l.open {
		most += l.left
	}
	in := min(units, most)
	l.left += u.in - in
	if l.changed == nil {
		l.changed = make(map[uint64]use)
	}
	u = use{in: in, beyond: units - in, stored: u.stored, undone: units == 0}
	if tell = u.beyond != u.stored; tell {
		u.stored = -1
	}
	l.changed[id] = u
	return u.beyond, tell
}

// Told notes that the store has an entry of so many units for what a use has beyond the lease. If the use was changed
// meanwhile, the store may have been told that before, so it has to be told again: as Change does, Told returns what.
func (l *Lease) Told(id uint64, beyond int) (now int, tell bool) {
	u := l.changed[id]
	if u.stored = beyond; u.beyond != beyond {
		u.stored = -1
	}
	l.changed[id] = u
	return u.beyond, u.stored < 0
}

// Settlement closes the lease, and returns the units that the store has to be told next. There is nothing to tell while
// a settlement is on its way, and when the store knows the sum.
func (l *Lease) Settlement() (units int, due bool) {
	l.open = false
	sum := l.Units - l.left
	if l.Units == 0 || l.sending || l.stored == sum {
		return 0, false
	}
	l.sending, l.sent = true, sum
	return sum, true
}

// Settled ends the settlement that is on its way. If the store has not answered, it is due again.
func (l *Lease) Settled(answered bool) {
	if l.sending = false; answered {
		l.stored = l.sent
	}
}
