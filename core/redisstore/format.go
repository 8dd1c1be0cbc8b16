package redisstore

import (
	"encoding/binary"
	"slices"
	"strconv"
	"time"

	"github.com/sashlimit/sash/core/store"
)

// This file writes takes as arguments of the script, and reads answers from its replies. docs/internals.md describes
// both in the section "Redis formats".

// batchKey is what takes must have in common to be sent together.
type batchKey struct {
	plans [store.MaxLimits]*store.Plan // of the logs that a take is about
	mode  store.Mode
	node  any
}

func batchKeyOf(t *store.Take, others []store.Take, node any) batchKey {
	k := batchKey{mode: t.Mode, node: node}
	k.plans[0] = t.Plan
	for i := range others {
		k.plans[1+i] = others[i].Plan
	}
	return k
}

// matches reports whether the take has this key, without making one.
func (k *batchKey) matches(t *store.Take, others []store.Take, node any) bool {
	if k.plans[0] != t.Plan || k.mode != t.Mode || k.node != node {
		return false
	}
	for i := range others {
		if k.plans[1+i] != others[i].Plan {
			return false
		}
	}
	return len(others)+1 == len(k.plans) || k.plans[len(others)+1] == nil
}

// format is how takes with one batchKey are written, and how the replies to them are read.
type format struct {
	script  script
	logs    int   // that each take is about
	tail    []any // the arguments after the ids
	grouped bool  // takes of the same keys and cost are sent as one group
	short   int   // the numbers of a short reply, 0 if all replies are whole
	whole   int   // the numbers of a whole reply
	room    int   // the units that takes of one key may have in a batch, 0 for any number: see queue.hasRoom
	rooms   []int // the same for each log of a take about several
	stream  bool  // the logs are streams, and the last argument is the time of the server
}

func newFormat(t *store.Take, others []store.Take) format {
	f := format{
		script:  takeScript,
		logs:    1 + len(others),
		grouped: t.Mode == store.ModeCharge && t.Plan.Shadow == 0,
		whole:   wholeSize(t.Plan),
	}
	isShort := hasShortForm(t.Plan)
	if t.Mode == store.ModeChargeDenied {
		f.room = t.Plan.Bound
	}
	for i := range others {
		p := others[i].Plan
		f.grouped, isShort = f.grouped && p.Shadow == 0, isShort && hasShortForm(p)
		f.whole += wholeSize(p)
	}
	if isShort = isShort && f.grouped; isShort {
		f.short = len(t.Plan.Limits)
	}
	switch {
	case len(others) == 0 && counts(t.Plan):
		f.script = counterScript
		isShort = f.grouped && hasShortCounter(t.Plan)
		if f.appendCounter(t, isShort); isShort {
			f.short = 1
		}
		return f
	case len(others) == 0:
		f.appendPlan(t, isShort)
		return f
	}
	f.script = jointScript
	f.whole++ // how many takes are admitted
	f.appendLog(t, isShort)
	for i := range others {
		if isShort {
			f.short += len(others[i].Plan.Limits)
		}
		f.appendLog(&others[i], isShort)
	}
	f.tail = append(f.tail, f.logs)
	return f
}

// toStream changes the format to that of logs in streams.
func (f *format) toStream() {
	f.script, f.stream = streamTakeScript, true
	f.tail = append(f.tail, int64(0))
}

// appendLog appends the arguments for one of several logs.
func (f *format) appendLog(t *store.Take, isShort bool) {
	if counts(t.Plan) {
		f.appendCounter(t, false)
		return
	}
	if t.Plan.Slots {
		f.tail = append(f.tail, "0"+strconv.Itoa(len(t.Plan.Limits)))
	} else {
		f.tail = append(f.tail, len(t.Plan.Limits))
	}
	f.appendPlan(t, isShort)
	if t.Mode == store.ModeChargeDenied {
		f.rooms = append(f.rooms, t.Plan.Bound)
	}
}

// appendPlan appends the arguments for one log.
func (f *format) appendPlan(t *store.Take, isShort bool) {
	p := t.Plan
	if isShort {
		f.tail = append(f.tail, ttl(p.Keep))
	} else {
		f.tail = append(f.tail, modeText(t), p.Keep.Microseconds(), ttl(p.Keep), len(p.Deciding()), p.Bound)
	}
	for _, limit := range p.Limits {
		f.tail = append(f.tail, limit.Quota, limit.Window.Microseconds())
	}
}

// wholeSize is how many numbers a whole reply has about one log.
func wholeSize(p *store.Plan) int { return 2 + min(p.Shadow, 1) + 2*len(p.Limits) }

// hasShortForm reports whether the longest window is that of the log, and each number of a short reply is exact in
// Lua, whose numbers are exact up to 2^53.
func hasShortForm(p *store.Plan) bool {
	if counts(p) {
		return false
	}
	longest := time.Duration(0)
	for _, limit := range p.Limits {
		if int64(limit.Quota)+1 >= (1<<53)/(limit.Window.Microseconds()+1) {
			return false
		}
		longest = max(longest, limit.Window)
	}
	return !p.Varies && p.Keep == longest
}

// modeText is the mode as the script reads it.
func modeText(t *store.Take) string {
	i := 2 * int(t.Mode)
	if t.Plan.Varies {
		return "vcvpvrvdvu"[i : i+2]
	}
	return "vcvpvrvdvu"[i+1 : i+2]
}

// ttl is the TTL in milliseconds of a log with entries that stay for keep. It is one second more, since Redis counts
// a TTL from the start of the script in milliseconds, and the log must not expire before its entries.
func ttl(keep time.Duration) int64 { return keep.Milliseconds() + 1000 }

// idLength is the length of a take's id in a log.
const idLength = 8

func idText(id uint64) string {
	var b [idLength]byte
	binary.BigEndian.PutUint64(b[:], id)
	return string(b[:])
}

// withCost returns the argument for takes with these ids.
func withCost(ids string, cost int) string {
	if cost <= 1 {
		return ids
	}
	var b [4]byte
	binary.BigEndian.PutUint32(b[:], uint32(cost)) // at most maxCost
	return ids + string(b[:])
}

// cut returns the part of a reply about its first key, and the rest. last tells that there are no more keys.
func (f *format) cut(reply []int64, last bool) (part, rest []int64, err error) {
	size := f.whole
	if f.short > 0 && len(reply) > 0 {
		if reply[0] != 0 {
			size = f.short
		} else {
			reply = reply[1:]
		}
	}
	if len(reply) < size || last && len(reply) > size {
		return nil, nil, protocolError("a reply with %d numbers left where %d are due", len(reply), size)
	}
	return reply[:size], reply[size:], nil
}

// answer reads the answer to t from the reply to its group, of which one tells the rest. It checks all numbers: another
// program may have written to the key, and the server may be none that runs the scripts.
func (f *format) answer(one *take, t *store.Take) (store.Answer, error) {
	if len(one.reply) == f.short {
		return shortAnswer(one.reply, t, slices.Min(one.reply) > 0)
	}
	return wholeAnswer(one, one.reply, one.reply[0], t)
}

// answers does the same for a take about several logs.
func (f *format) answers(one *take, takes []store.Take, answers []store.Answer) (err error) {
	reply, admitted := one.reply, int64(0)
	isShort := len(reply) == f.short
	allowed := isShort && slices.Min(reply) > 0
	if !isShort {
		if admitted, reply = reply[0], reply[1:]; admitted < 0 || admitted > most(one, &takes[0]) {
			return protocolError("%d of %d takes admitted", admitted, one.takes)
		}
		allowed = int64(one.place) < admitted
	}
	all := true
	for i := range takes {
		t := &takes[i]
		var size int
		if isShort {
			size = len(t.Plan.Limits)
			answers[i], err = shortAnswer(reply[:size], t, allowed)
		} else {
			size = wholeSize(t.Plan)
			answers[i], err = wholeAnswer(one, reply[:size], admitted, t)
		}
		if err != nil {
			return err
		}
		reply, all = reply[size:], all && answers[i].Allowed
	}
	// Of slots, ModeRecord asks whether there is one.
	if all != allowed && takes[0].Mode != store.ModeRecord {
		return protocolError("a verdict that is not that of the logs in reply %v", one.reply)
	}
	return nil
}

// shortAnswer reads a short reply. recorded tells whether the take was.
func shortAnswer(reply []int64, t *store.Take, recorded bool) (a store.Answer, err error) {
	for i, number := range reply {
		limit := &t.Plan.Limits[i]
		per, value := span(limit)+1, max(number, -number)-1
		used, reset := value/per, time.Duration(value%per)*time.Microsecond
		good := number > 0 && used < int64(limit.Quota) || number < 0 && used == int64(limit.Quota)
		if !good || reset == 0 && (used > 0 || recorded) {
			return store.Answer{}, protocolError("numbers out of range in reply %v", reply)
		}
		if a.State[i] = (store.State{Used: int(used), Reset: reset}); number < 0 {
			a.Retry = max(a.Retry, reset)
		}
	}
	t.Plan.Judge(&a, t.Cost, t.Mode)
	return a, nil
}

// wholeAnswer reads the answer to one take of a group from a whole reply about one log. The first takes were recorded.
func wholeAnswer(one *take, reply []int64, recorded int64, t *store.Take) (a store.Answer, err error) {
	p, head := t.Plan, 2+min(t.Plan.Shadow, 1)
	if len(reply) != wholeSize(p) {
		return a, protocolError("a reply of %d numbers to %d limits", len(reply), len(p.Limits))
	}
	admitted, wait, shadow, keep := reply[0], reply[1], reply[head-1], max(p.Keep, longest(p, 0)).Microseconds()
	all := most(one, t)
	refused := admitted < all && (t.Mode != store.ModeUpTo || admitted == 0)
	good := admitted >= 0 && admitted <= all && (wait != 0) == refused &&
		wait >= -1 && wait <= keep && shadow >= -1 && shadow <= keep
	allowed := int64(one.place) < admitted
	if !allowed {
		a.Retry = time.Duration(max(wait, 0)) * time.Microsecond
	}
	if p.Shadow > 0 {
		a.Shadow = time.Duration(max(shadow, 0)) * time.Microsecond
	}
	before := min(recorded, int64(one.place)) * int64(t.Cost) // units of takes before this one in the group
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
		return store.Answer{}, protocolError("numbers out of range in reply %v", reply)
	}
	a.Allowed = allowed // also if the take was sent twice, and others were admitted in between
	if t.Mode == store.ModeUpTo {
		a.Granted = int(recorded)
	}
	return a, nil
}

// most is how many takes, or units of a take for up to so many, a reply admits at most.
func most(one *take, t *store.Take) int64 {
	if t.Mode == store.ModeUpTo {
		return int64(t.Cost)
	}
	return int64(one.takes)
}
