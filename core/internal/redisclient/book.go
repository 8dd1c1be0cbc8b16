package redisclient

import (
	"cmp"
	"context"
	"encoding/binary"

	"github.com/sashlimit/sash/core/store"
)

// Book books units. Bookings go to the server together with takes of the same plan.
func (l *Logs) Book(ctx context.Context, b *store.Booking) (answer store.Booked, err error) {
	t := b.Take
	t.Mode = store.ModeCharge // bookings with a take and without go together
	one, err := l.together(ctx, &l.batchers, l.kind.NewFormat, t, bookingText(b))
	if err != nil {
		return answer, err
	}
	defer takePool.Put(one)
	if len(one.reply) <= booked {
		return answer, ProtocolError("a reply of %d numbers to a booking", len(one.reply))
	}
	units, others := one.reply[0], one.reply[1]
	if units < 0 || units > int64(b.Most) || others < 0 {
		return answer, ProtocolError("%d units booked, of %d", units, b.Most)
	}
	answer.Units, answer.Others = int(units), int(others)
	answer.Answer, err = wholeAnswer(one, one.reply[booked:], one.reply[booked], &b.Take, 1)
	return answer, err
}

// Settle implements [store.Settler]. Settlements go to the server together, as takes do.
func (l *Logs) Settle(ctx context.Context, s store.Settlement) error {
	if err := cmp.Or(CheckCost(s.Cost), s.Key.Validate()); err != nil {
		return err
	}
	text := string(binary.BigEndian.AppendUint32([]byte(IDText(s.ID)), uint32(s.Cost)))
	one, err := l.together(ctx, &l.settlements, l.settleFormat, store.Take{Key: s.Key}, text)
	if err == nil {
		takePool.Put(one)
	}
	return err
}

func (l *Logs) settleFormat([]store.Take) Format {
	return Format{Script: l.kind.Settle, Logs: 1, Whole: 1}
}

// together sends an argument of a script with those of others, and returns what it has become. t has the key, and what
// others have in common with it.
func (l *Logs) together(
	ctx context.Context, all *batchers, newFormat func([]store.Take) Format, t store.Take, argument string,
) (*take, error) {
	one, _ := takePool.Get().(*take)
	one.group, one.ids = nil, nil
	one.ctx, one.place = ctx, 0
	one.key, one.argument = l.Key(&t.Key), argument
	one.keys = append(one.space[:0], one.key)
	of := all.find(l.Conn, newFormat, []store.Take{t}, l.Conn.node(ctx, one.key))
	if err := of.do(one); err != nil {
		return nil, l.Failed(err)
	}
	return one, nil
}
