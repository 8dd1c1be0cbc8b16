package redisclient

import (
	"context"
	"encoding/binary"
	"sync"

	"github.com/sashlimit/sash/core/store"
)

// take is a take of one caller, on its way to the server and back.
type take struct {
	ctx  context.Context
	key  string   // the keys of its logs in a row, which no other logs have
	keys []string // of its logs

	argument string // its id and its costs: see appendCosts

	space [store.MaxLimits]string // for keys

	own  call          // the command, if the take is the first that is sent by it
	done chan struct{} // receives a value when the fields below are set

	next    *take  // of its key, in a queue
	arrival uint64 // its number among all takes of a queue

	group *take  // the first take of its group, which are those of the same keys and costs in a batch
	ids   []byte // of the group, if this is its first take and not the only one

	reply []int64 // of its group
	takes int     // how many takes the group has
	place int     // of this one in the group, from 0 on
	err   error
}

// takePool has takes that were answered. A take whose caller has given up does not return to it, because a client may
// still hold its command.
var takePool = sync.Pool{New: func() any { return &take{done: make(chan struct{}, 1)} }}

// most is how many takes, or units of takes for up to so many, a reply admits at most.
func (t *take) most(takes []store.Take) int64 {
	if takes[0].Mode == store.ModeUpTo {
		return int64(store.MostGranted(takes))
	}
	return int64(t.takes)
}

// gaveUp reports whether the take's caller waits no longer.
func (t *take) gaveUp() bool { return t.ctx.Err() != nil }

// idLength is the length of a take's id in a log.
const idLength = 8

// IDText is a take's id as it is in a log.
func IDText(id uint64) string {
	var b [idLength]byte
	binary.BigEndian.PutUint64(b[:], id)
	return string(b[:])
}

// costLength is the length of a cost behind the ids of takes.
const costLength = 4

// appendCosts appends what follows the ids of takes with the costs of these: nothing if each costs one unit; their cost
// if it is the same; or else a byte 0 and the cost of each. The costs of slots do not matter.
func appendCosts(b []byte, takes []store.Take) []byte {
	common, differ := store.MostGranted(takes), false
	if len(takes) == 1 {
		common, _ = takes[0].Plan.Counted(common, takes[0].Mode)
	}
	for i := 1; i < len(takes); i++ {
		differ = differ || takes[i].Cost != common && !takes[i].Plan.Slots
	}
	switch {
	case differ:
		b = append(b, 0)
		for i := range takes {
			b = binary.BigEndian.AppendUint32(b, uint32(max(takes[i].Cost, 1))) // at most MaxCost
		}
	case common > 1:
		b = binary.BigEndian.AppendUint32(b, uint32(common))
	}
	return b
}

func (t *take) id() string    { return t.argument[:idLength] }
func (t *take) costs() string { return t.argument[idLength:] }

// cost is how many units the take is for in the log with that number.
func (t *take) cost(log int) int {
	costs := t.costs()
	switch len(costs) {
	case 0:
		return 1
	case costLength:
	default:
		costs = costs[1+log*costLength:]
	}
	return int(binary.BigEndian.Uint32([]byte(costs[:costLength])))
}

// bookingLength is the length of a booking's argument, which no take and no group has.
const bookingLength = 46

// books reports whether the take is a booking.
func (t *take) books() bool { return len(t.argument) == bookingLength }

// bookingText is the argument of a booking.
func bookingText(b *store.Booking) string {
	taken := 0
	if b.Take.Mode != store.ModePeek {
		taken = b.Take.Cost
	}
	text := binary.BigEndian.AppendUint64(make([]byte, 0, bookingLength), b.Take.ID)
	text = binary.BigEndian.AppendUint32(text, uint32(taken))
	text = binary.BigEndian.AppendUint64(text, b.Settled)
	text = binary.BigEndian.AppendUint32(text, uint32(b.Used))
	text = binary.BigEndian.AppendUint64(text, b.ID)
	text = binary.BigEndian.AppendUint32(text, uint32(b.Most))
	text = binary.BigEndian.AppendUint32(text, uint32(b.Share))
	text = binary.BigEndian.AppendUint16(text, 0) // no take has such a length
	text = binary.BigEndian.AppendUint32(text, uint32(b.Lease.Microseconds()))
	return string(text)
}
