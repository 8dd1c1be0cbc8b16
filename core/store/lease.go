package store

import (
	"context"
	"time"
)

// LongestLease is the longest [Booking.Lease]. An entry that is stamped later than this after the store's now shows
// that the store's clock was set back: whatever is asked of the log moves it to now + LongestLease.
const LongestLease = time.Second

// leastBooked is how many units a booking has at least: a take is as good as a booking of one.
const leastBooked = 2

// Leaser is a [Store] in which limiters can book units ahead. core.WithLease needs it.
//
// A booking is an entry that is stamped when its lease ends: at the store's now + [Booking.Lease]. All takes count it
// until it leaves their windows, Settle changes its cost and moves it to now if it is stamped later, and Reset keeps it
// while it is stamped after now. Other entries are stamped when they are recorded.
type Leaser interface {
	Store
	Settler

	// Book does up to three things with one log, in one atomic step: it settles an earlier booking, as Settle does; it
	// decides about a take, as Take does; and if the take was admitted or there is none, it books units.
	//
	// A Booking that is executed again with its IDs records nothing twice, and books the same units.
	Book(ctx context.Context, b Booking) (Booked, error)
}

// Booking is what [Leaser.Book] is asked.
type Booking struct {
	Take Take // of ModeCharge; or of ModePeek, so that nothing is taken

	Settled uint64 // the ID of the booking to settle, or 0
	Used    int    // its cost from now on

	ID    uint64        // of the entry that is booked
	Most  int           // units to book
	Share int           // how many times as many units must remain: see Grant
	Lease time.Duration // in whole microseconds, at most LongestLease
}

// Validate returns an error for a booking that no store accepts.
func (b *Booking) Validate() error {
	if err := b.Take.Validate(); err != nil {
		return err
	}
	p := b.Take.Plan
	var wrong string
	switch {
	case b.Take.Mode != ModeCharge && b.Take.Mode != ModePeek:
		wrong = "its take has another mode than ModeCharge or ModePeek"
	case p.Algorithm() != SlidingLog || p.Slots || p.Shadow > 0:
		wrong = "the plan has other limits than sliding logs that decide"
	case b.Lease < 0 || b.Lease > LongestLease:
		wrong = "the lease is longer than LongestLease"
	default:
		return nil
	}
	return configError("store.Booking", b.Lease.String(), wrong, "ask for what Leaser describes")
}

// Grant returns how many units a store books, if all limits that decide have room for so many, and the log has so many
// other entries that are stamped after now: the part of them that Share allows, or 1 in 4 for each of these bookings
// and this one, if that is less. It is 0 if these are too few for a booking.
func (b *Booking) Grant(room, others int) int {
	units := min(b.Most, room/max(b.Share, 4*(1+others), 1))
	if units < leastBooked {
		return 0
	}
	return units
}

// Booked is what [Leaser.Book] has found.
type Booked struct {
	Answer Answer // about the take, as it is without the units that were booked
	Units  int    // that were booked
	Others int    // entries that are stamped after now, without the one that was booked
}
