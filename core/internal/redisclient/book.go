package redisclient

import (
	"context"
	"encoding/binary"

	"github.com/sashlimit/sash/core/store"
)

// Book books units by that script. Bookings go to the server together, as takes do.
func (l *Logs) Book(ctx context.Context, sc Script, b *store.Booking) (booked store.Booked, err error) {
	t := b.Take
	t.Mode = store.ModeCharge // bookings with a take and without go together
	// What follows the IDs and costs is that of a take in the long form.
	one, err := l.together(ctx, &l.bookings, t, bookingText(b), func([]store.Take) Format {
		f := Format{Script: sc, Logs: 1, Whole: 2 + wholeSize(t.Plan)}
		f.AppendPlan(&t, false)
		return f
	})
	if err != nil {
		return booked, err
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

// Settle changes the cost of a take by that script. Settlements go to the server together, as takes do.
func (l *Logs) Settle(ctx context.Context, sc Script, s *store.Settlement) error {
	if err := s.Key.Validate(); err != nil {
		return err
	}
	text := string(binary.BigEndian.AppendUint32([]byte(IDText(s.ID)), uint32(s.Cost)))
	one, err := l.together(ctx, &l.settlements, store.Take{Key: s.Key}, text, func([]store.Take) Format {
		return Format{Script: sc, Logs: 1, Whole: 1}
	})
	if err == nil {
		takePool.Put(one)
	}
	return err
}

// together sends an argument of a script with those of others, and returns what it has become. t has the key, and what
// others have in common with it.
func (l *Logs) together(
	ctx context.Context, all *batchers, t store.Take, argument string, format func([]store.Take) Format,
) (*take, error) {
	one, _ := takePool.Get().(*take)
	one.ctx, one.place, one.keys = ctx, 0, nil
	one.key, one.argument = l.Key(&t.Key), argument
	kind := &Kind{Package: l.kind.Package, NewFormat: format}
	of := all.find(l.Conn, kind, []store.Take{t}, l.Conn.nodeOf(ctx, one.key))
	if err := of.do(one); err != nil {
		return nil, l.Failed(err)
	}
	return one, nil
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
