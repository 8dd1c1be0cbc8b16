package redisclient

import (
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/sashlimit/sash/core/store"
)

// This file writes plans as arguments of the script, as take.go does takes, and reads answers from its replies.
// docs/internals.md describes both in the section "Redis formats".

// Format is how takes with one batchKey are written, and how the replies to them are read.
type Format struct {
	Script Script
	// Weighted decides where a log has weights: Script then only tells so, and records nothing. It is the zero Script
	// if there is none.
	Weighted Script
	// Booked decides takes and bookings. It is the zero Script if units cannot be booked.
	Booked Script

	Logs    int   // that each take is about
	Tail    []any // the arguments after the ids
	Grouped bool  // takes of the same keys and cost are sent as one group
	Peeks   bool  // nothing is recorded
	Counts  bool  // takes that are sent twice count twice
	Short   int   // the numbers of a short reply, 0 if all replies are whole
	Whole   int   // the numbers of a whole reply
	Rooms   []int // the units that takes of one log may have in a batch, for each log; nil for any number: see hasRoom
	Since   bool  // the last argument is the time of the server, and so is the last number of a reply: see clock
}

// NewFormat returns what the formats of all scripts have in common.
func NewFormat(sc Script, takes []store.Take) Format {
	mode := takes[0].Mode
	f := Format{Script: sc, Logs: len(takes), Grouped: mode == store.ModeCharge, Peeks: mode == store.ModePeek}
	if f.Logs > 1 {
		f.Whole = 1 // how many takes are admitted
	}
	for i := range takes {
		f.Grouped = f.Grouped && takes[i].Plan.Shadow == 0
		f.Whole += wholeSize(takes[i].Plan)
		if mode == store.ModeChargeDenied {
			f.Rooms = append(f.Rooms, takes[i].Plan.Bound)
		}
	}
	return f
}

// AppendPlan appends the arguments for one log, which ask for short replies or for whole ones.
func (f *Format) AppendPlan(t *store.Take, isShort bool) {
	p := t.Plan
	switch {
	case isShort && f.Peeks && p.Varies:
		f.Tail = append(f.Tail, "VP")
	case isShort && f.Peeks:
		f.Tail = append(f.Tail, "P")
	case isShort && p.Varies:
		f.Tail = append(f.Tail, "V"+strconv.FormatInt(TTL(p.Keep), 10))
	case isShort:
		f.Tail = append(f.Tail, TTL(p.Keep))
	default:
		f.Tail = append(f.Tail, ModeText(t), p.Keep.Microseconds(), TTL(p.Keep), len(p.Deciding()), p.Bound)
	}
	for _, limit := range p.Limits {
		f.Tail = append(f.Tail, limit.Quota, limit.Window.Microseconds())
	}
	if isShort {
		f.Short += len(p.Limits)
	}
}

// wholeSize is how many numbers a whole reply has about one log.
func wholeSize(p *store.Plan) int { return 2 + min(p.Shadow, 1) + 2*len(p.Limits) }

// HasShortForm reports whether takes by a plan are charged or peeks, all its limits decide, the longest window is that
// of the log, and each number of a short reply is exact in Lua, whose numbers are exact up to 2^53.
func (f *Format) HasShortForm(p *store.Plan) bool {
	if p.Algorithm() != store.SlidingLog || p.Shadow > 0 || !f.Grouped && !f.Peeks {
		return false
	}
	longest := time.Duration(0)
	for _, limit := range p.Limits {
		if int64(limit.Quota)+1 >= (1<<53)/(limit.Window.Microseconds()+1) {
			return false
		}
		longest = max(longest, limit.Window)
	}
	return p.Keep == longest
}

// ModeText is the mode as the script reads it.
func ModeText(t *store.Take) string {
	i := 2 * int(t.Mode)
	if t.Plan.Varies {
		return "vcvpvrvdvu"[i : i+2]
	}
	return "vcvpvrvdvu"[i+1 : i+2]
}

// TTL is the TTL in milliseconds of a log with entries that stay for keep. It is one second more, since Redis counts
// a TTL from the start of the script in milliseconds, and the log must not expire before its entries.
func TTL(keep time.Duration) int64 { return keep.Milliseconds() + 1000 }

// isWeighted reports whether a part of a reply tells that a log has weights.
func isWeighted(part []int64) bool { return len(part) == 1 && part[0] == weightedReply }

// weightedReply is no short reply: that would be of an empty log that denies.
const weightedReply = -1

// booked is how many numbers of the reply to a booking come before those to its take.
const booked = 2

// cut returns the part of a reply about a take, which comes first, and the rest. last tells that there is no rest.
func (f *Format) cut(reply []int64, t *take, last bool) (part, rest []int64, err error) {
	if t.books() && len(reply) > booked {
		part, rest, err = f.cut(reply[booked:], &take{}, last)
		return slices.Concat(reply[:booked], part), rest, err
	}
	size := f.Whole
	if f.Short > 0 && len(reply) > 0 {
		if reply[0] != 0 {
			size = f.Short
		} else {
			reply = reply[1:]
		}
	}
	if size == f.Whole && len(reply) > 0 && reply[0] == weightedReply && !f.Weighted.isZero() {
		size = 1
	}
	if len(reply) < size || last && len(reply) > size {
		return nil, nil, ProtocolError("a reply with %d numbers left where %d are due", len(reply), size)
	}
	return reply[:size], reply[size:], nil
}

// answers reads the answers to a request from the reply to its group, of which one tells the rest. It checks all
// numbers: another program may have written to the key, and the server may be none that runs the scripts.
func (f *Format) answers(one *take, takes []store.Take, answers []store.Answer) (err error) {
	reply, admitted := one.reply, int64(0)
	isShort := len(reply) == f.Short
	allowed := isShort && slices.Min(reply) > 0
	if !isShort {
		if admitted = reply[0]; f.Logs > 1 {
			reply = reply[1:]
		}
		if admitted < 0 || admitted > one.most(takes) {
			return ProtocolError("%d of %d takes admitted", admitted, one.takes)
		}
		allowed = int64(one.place) < admitted
	}
	all := true
	for i := range takes {
		t := &takes[i]
		var size int
		if isShort {
			size = len(t.Plan.Limits)
			answers[i], err = shortAnswer(reply[:size], t, allowed && !f.Peeks)
		} else {
			size = wholeSize(t.Plan)
			answers[i], err = wholeAnswer(one, reply[:size], admitted, t, one.most(takes))
		}
		if err != nil {
			return err
		}
		if f.Logs == 1 && t.Plan.Slots && answers[i].Granted > 0 {
			answers[i].Granted = t.Cost // one slot is enough for all
		}
		reply, all = reply[size:], all && answers[i].Allowed
	}
	// Of slots, ModeRecord asks whether there is one.
	if all != allowed && takes[0].Mode != store.ModeRecord {
		return ProtocolError("a verdict that is not that of the logs in reply %v", one.reply)
	}
	return nil
}

// shortAnswer reads a short reply. recorded tells whether the take was.
func shortAnswer(reply []int64, t *store.Take, recorded bool) (a store.Answer, err error) {
	for i, number := range reply {
		limit := &t.Plan.Limits[i]
		per, value := Span(limit)+1, max(number, -number)-1
		used, reset := value/per, time.Duration(value%per)*time.Microsecond
		good := number > 0 && used < int64(limit.Quota) || number < 0 && used == int64(limit.Quota)
		if !good || reset == 0 && (used > 0 || recorded) {
			return store.Answer{}, ProtocolError("numbers out of range in reply %v", reply)
		}
		if a.State[i] = (store.State{Used: int(used), Reset: reset}); number < 0 {
			a.Retry = max(a.Retry, reset)
		}
	}
	t.Plan.Judge(&a, t.Cost, t.Mode)
	return a, nil
}

// wholeAnswer reads the answer to one take of a group from a whole reply about one log, which admits at most so many.
// The first takes were recorded.
func wholeAnswer(one *take, reply []int64, recorded int64, t *store.Take, most int64) (a store.Answer, err error) {
	p, head := t.Plan, 2+min(t.Plan.Shadow, 1)
	if len(reply) != wholeSize(p) {
		return a, ProtocolError("a reply of %d numbers to %d limits", len(reply), len(p.Limits))
	}
	admitted, wait, shadow := reply[0], reply[1], reply[head-1]
	keep := max(p.Keep+store.LongestLease, longest(p, 0)).Microseconds()
	refused := admitted < most && (t.Mode != store.ModeUpTo || admitted == 0)
	good := admitted >= 0 && admitted <= most && (wait != 0) == refused &&
		wait >= -1 && wait <= keep && shadow >= -1 && shadow <= keep
	allowed := int64(one.place) < admitted
	if !allowed {
		a.Retry = time.Duration(max(wait, 0)) * time.Microsecond
	}
	if p.Shadow > 0 {
		a.Shadow = time.Duration(max(shadow, 0)) * time.Microsecond
	}
	cost, _ := p.Counted(t.Cost, t.Mode)
	before := min(recorded, int64(one.place)) * int64(cost) // units of takes before this one in the group
	for i := range p.Limits {
		used, reset := reply[head+2*i], reply[head+1+2*i]
		good = good && used >= 0 && used < 1<<53 && reset >= 0 && reset <= longest(p, i).Microseconds()
		used += before
		a.State[i] = store.State{Used: int(used), Reset: time.Duration(reset) * time.Microsecond}
	}
	p.Judge(&a, t.Cost, t.Mode)
	if !allowed && a.Allowed && t.Mode == store.ModeChargeDenied {
		// The denial was recorded when the take was sent before, and there is room by now. Which limit has denied it
		// is not known any more.
		a.Allowed, a.Denied = false, a.Denied|(1<<len(p.Deciding())-1)
	}
	if !good || !allowed && a.Allowed {
		return store.Answer{}, ProtocolError("numbers out of range in reply %v", reply)
	}
	a.Allowed = allowed // also if the take was sent twice, and others were admitted in between
	if t.Mode == store.ModeUpTo {
		a.Granted = int(recorded)
	}
	return a, nil
}

// Span is what reset can be in a short reply, in microseconds.
func Span(l *store.Limit) int64 {
	if l.Algorithm == store.TokenBucket {
		return l.Interval() / 1000
	}
	return l.Window.Microseconds()
}

// longest returns how long a wait by a limit can be. If the server's clock is set back, a period more counts; units of
// a log may be booked ahead.
func longest(p *store.Plan, i int) time.Duration {
	l := &p.Limits[i]
	switch l.Algorithm {
	case store.SlidingLog:
		return l.Window + store.LongestLease
	case store.TokenBucket:
		return 10*time.Duration(int64(l.Quota)*l.Interval()) + time.Microsecond // see mostRefills
	case store.FixedWindow, store.SlidingCounter:
	}
	return time.Duration(min(int64(l.Window), math.MaxInt64/3) * 3)
}
