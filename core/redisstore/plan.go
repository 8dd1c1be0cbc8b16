package redisstore

import (
	"encoding/binary"
	"math"
	"slices"
	"time"

	"github.com/sashlimit/sash/core/internal/redisclient"
	"github.com/sashlimit/sash/core/internal/redislog"
	"github.com/sashlimit/sash/core/store"
)

// plan is how requests over the same limits, in the same mode, are written for a script, and how its replies are read.
type plan struct {
	redisclient.Plan

	mode   store.Mode
	limits []*store.Limit
	isOne  bool // the script is one, and not list
}

const group = 500 // takes that become one, so that a script has room for their ids

// newPlan returns the plan of a request.
func newPlan(takes []store.Take) *plan {
	p := &plan{mode: takes[0].Mode}
	p.Recorded, p.Cut = p.isRecorded, p.cut
	for i := range takes {
		p.limits = append(p.limits, takes[i].Limit)
	}
	l := p.limits[0]
	if len(takes) == 1 {
		_, p.mode = l.Counted(1, p.mode)
		isExact := int64(l.Quota)+1 < (1<<53)/span(l) // numbers of Lua are exact up to 2^53
		p.isOne = p.mode == store.ModeCharge && l.Algorithm == store.SlidingLog && !l.Unlimited && isExact
	}
	if p.mode == store.ModeCharge {
		p.Group = group
	}
	if p.isOne {
		p.Script, p.Tail = one, []any{l.Quota, l.Window.Microseconds(), redislog.TTL(l)}
		return p
	}
	p.Script = list
	for _, l := range p.limits {
		p.Tail = append(p.Tail, arguments(l)...)
	}
	p.Tail = append(p.Tail, modes[p.mode], max(takes[0].Share, 1), len(takes))
	return p
}

// cut returns how many numbers a reply has.
func (p *plan) cut(reply []int64, _ int) (n int) {
	isShort := len(reply) > 0 && reply[0] < 0
	for _, l := range p.limits {
		switch n += periodSize(l); {
		case !isShort:
			n += 3
		case isCounter(l):
			n += 2
		default:
			n++
		}
	}
	if !isShort {
		n++
	}
	return n
}

var modes = [...]string{
	store.ModeCharge: "c", store.ModePeek: "p", store.ModeRecord: "r", store.ModeChargeDenied: "d",
	store.ModeAtMost: "m",
}

// arguments returns what scripts know of a limit.
func arguments(l *store.Limit) []any {
	letter := map[bool]string{true: "u", false: "l"}[l.Unlimited]
	if l.Permits {
		letter = "p"
	}
	switch c := l.Calendar; {
	case l.Algorithm == store.TokenBucket:
		parts := bucketParts(l)
		return []any{"t", l.Quota, l.Interval() * parts / 1000, parts}
	case l.Algorithm == store.SlidingCounter:
		return []any{"s", l.Quota, l.Window.Microseconds(), ""}
	case c != nil:
		var b []byte
		for _, instant := range c {
			b = binary.BigEndian.AppendUint64(b, uint64(instant))
		}
		return []any{"f", l.Quota, l.Window.Microseconds(), string(b)}
	case l.Algorithm == store.FixedWindow:
		return []any{"f", l.Quota, l.Window.Microseconds(), ""}
	}
	return []any{letter, l.Quota, l.Window.Microseconds(), redislog.TTL(l)}
}

// bucketParts returns of how many parts of a microsecond the interval of a bucket is a whole number.
func bucketParts(l *store.Limit) int64 {
	parts := int64(1)
	for l.Interval()*parts%1000 > 0 {
		parts++
	}
	return parts
}

func isCounter(l *store.Limit) bool { return l.Algorithm != store.SlidingLog }

// periodSize is how many numbers the script list replies about the period of a limit.
func periodSize(l *store.Limit) int {
	switch {
	case l.Algorithm == store.TokenBucket && bucketParts(l) > 1:
		return 2
	case isCounter(l):
		return 1
	}
	return 0
}

// appendCosts appends what follows the id of a request.
func (p *plan) appendCosts(b []byte, takes []store.Take) []byte {
	if p.isOne {
		if cost, _ := takes[0].Limit.Counted(takes[0].Cost, p.mode); cost > 1 {
			b = redislog.AppendUnits(b, cost)
		}
		return b
	}
	if !slices.ContainsFunc(takes, func(t store.Take) bool { return t.Cost > 1 }) {
		return b
	}
	b = append(b, 0)
	for i := range takes {
		cost := takes[i].Cost
		if p.mode == store.ModeAtMost {
			cost = least(takes)
		} else {
			cost, _ = takes[i].Limit.Counted(cost, p.mode)
		}
		b = redislog.AppendUnits(b, cost)
	}
	return b
}

// least is how many units a request in ModeAtMost gets at most.
func least(takes []store.Take) int {
	n := takes[0].Cost
	for i := range takes {
		n = min(n, takes[i].Cost)
	}
	return n
}

// span is by what a number of a short reply has the units that are used.
func span(l *store.Limit) int64 { return l.Window.Microseconds() + 1 }

// short returns what a number of a short reply tells.
func short(l *store.Limit, number int64) (used, reset int64) {
	if isCounter(l) {
		return -number - 1, 0
	}
	return (-number - 1) / span(l), (-number - 1) % span(l)
}

// recorded returns how many takes of a question are admitted, in ModeAtMost how many units.
func (p *plan) recorded(q *redisclient.Question) int64 {
	if q.Reply[0] >= 0 {
		return q.Reply[0]
	}
	for i, l := range p.limits {
		if used, _ := short(l, q.Reply[i]); used >= int64(l.Quota) {
			return 0
		}
	}
	return int64(q.StandsFor)
}

// isRecorded reports whether a question was recorded, by its reply.
func (p *plan) isRecorded(q *redisclient.Question) bool {
	if p.mode == store.ModeCharge {
		return int64(q.Place) < p.recorded(q)
	}
	return p.mode != store.ModePeek // or a denial was, or nothing
}

// read fills in the answers to a request. It checks all numbers: another program may have written to the key, and the
// server may be none that runs the scripts.
func (p *plan) read(q *redisclient.Question, takes []store.Take, answers []store.Answer) error {
	recorded, reply, place := p.recorded(q), q.Reply, int64(q.Place)
	isShort, most := reply[0] < 0, q.StandsFor
	if !isShort {
		reply = reply[1:]
	}
	if p.mode == store.ModeAtMost {
		most = least(takes)
	}
	admitted, good, denied := place < recorded, recorded <= int64(most), false
	for i := range takes {
		l := takes[i].Limit
		var used, reset, wait int64
		switch {
		case !isShort:
			used, reset, wait, reply = reply[0], reply[1], reply[2], reply[3:]
		case isCounter(l):
			used, _ = short(l, reply[0])
			reset, reply = reply[1], reply[2:]
		default:
			used, reset = short(l, reply[0])
			wait, reply = reset, reply[1:]
		}
		good = good && inRange(l, used, reset, wait) && !(isShort && used > int64(l.Quota))
		cost, mode := l.Counted(takes[i].Cost, takes[i].Mode)
		switch mode {
		case store.ModeCharge, store.ModeChargeDenied:
			used += max(min(recorded, place), 0) * int64(cost)
		case store.ModeAtMost:
			cost = 1
		case store.ModeRecord, store.ModePeek:
		}
		a := answer(used, reset, wait, admitted && mode != store.ModePeek || l.HasRoom(int(used), cost))
		if mode == store.ModeAtMost {
			a.Granted = int(recorded)
		}
		a.Period, reply = period(l, reply)
		if l.Algorithm == store.TokenBucket { // the units of those before it in the group come back before its own
			a.Period += max(min(recorded, place), 0) * int64(cost) * l.Interval()
		}
		answers[i], denied = a, denied || !a.Allowed
	}
	roomy := !admitted && !denied && p.mode != store.ModePeek // yet it is denied
	if roomy && p.mode == store.ModeChargeDenied {
		// The denial was counted when the command was executed before, and there is room by now.
		answers[0].Allowed, answers[0].Retry = false, time.Microsecond
	} else if roomy || !good {
		return redisclient.ProtocolError("numbers out of range in reply %v", q.Reply)
	}
	return nil
}

// period returns the period of a counter, with which a reply begins, and what follows.
func period(l *store.Limit, reply []int64) (of int64, rest []int64) {
	switch periodSize(l) {
	case 1:
		return reply[0] * 1000, reply[1:]
	case 2:
		return reply[0]*1000 + reply[1], reply[2:]
	}
	return 0, reply
}

// answer returns an answer by numbers of a reply, in microseconds.
func answer(used, reset, wait int64, allowed bool) store.Answer {
	a := store.Answer{
		Known: true, Allowed: allowed, Used: int(used), Reset: time.Duration(reset) * time.Microsecond,
	}
	if !allowed {
		a.Retry = time.Duration(wait) * time.Microsecond
	}
	return a
}

// inRange reports whether numbers of a reply can be.
func inRange(l *store.Limit, used, reset, wait int64) bool {
	longest := l.Window.Microseconds() + 1e6
	if isCounter(l) {
		longest = math.MaxInt64 / 1000
	}
	return used >= 0 && used < 1<<53 && reset >= 0 && reset <= longest && wait >= 0 && wait <= longest
}
