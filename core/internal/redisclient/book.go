package redisclient

import (
	"context"
	"encoding/binary"

	"github.com/sashlimit/sash/core/store"
)

// bookFormat is how bookings of one plan and mode are written. What follows the IDs and costs is that of a take in the
// long form.
func bookFormat(sc Script) func([]store.Take) Format {
	return func(takes []store.Take) Format {
		f := Format{Script: sc, Logs: 1, Whole: 2 + wholeSize(takes[0].Plan)}
		f.AppendPlan(&takes[0], false)
		return f
	}
}

// Book books units by that script. Bookings go to the server together, as takes do.
func (l *Logs) Book(ctx context.Context, sc Script, b *store.Booking) (booked store.Booked, err error) {
	one, _ := takePool.Get().(*take)
	takes := []store.Take{b.Take}
	takes[0].Mode = store.ModeCharge // bookings with a take and without go together
	one.ctx, one.place, one.keys = ctx, 0, nil
	one.key, one.argument = l.Key(&b.Take.Key), bookingText(b)
	kind := &Kind{Package: l.kind.Package, NewFormat: bookFormat(sc)}
	of := l.bookings.find(l.Conn, kind, takes, l.Conn.nodeOf(ctx, one.key))
	if err = of.do(one); err != nil {
		return booked, l.Failed(err)
	}
	defer takePool.Put(one)
	units, others := one.reply[0], one.reply[1]
	if units < 0 || units > int64(b.Most) || others < 0 {
		return booked, ProtocolError("%d units booked, of %d", units, b.Most)
	}
	booked.Units, booked.Others = int(units), int(others)
	booked.Answer, err = wholeAnswer(one, one.reply[2:], one.reply[2], &b.Take, 1)
	return booked, err
}

// bookingText is the argument of a booking.
func bookingText(b *store.Booking) string {
	taken := 0
	if b.Take.Mode != store.ModePeek {
		taken = b.Take.Cost
	}
	text := binary.BigEndian.AppendUint64(make([]byte, 0, 48), b.Take.ID)
	text = binary.BigEndian.AppendUint32(text, uint32(taken))
	text = binary.BigEndian.AppendUint64(text, b.Settled)
	text = binary.BigEndian.AppendUint32(text, uint32(b.Used))
	text = binary.BigEndian.AppendUint64(text, b.ID)
	text = binary.BigEndian.AppendUint32(text, uint32(b.Most))
	text = binary.BigEndian.AppendUint32(text, uint32(b.Share))
	text = binary.BigEndian.AppendUint32(text, uint32(b.Lease.Microseconds()))
	return string(text)
}
