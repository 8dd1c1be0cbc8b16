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
	span   int64 // of a reply of the script one: the window (us) and 1; of that of list 0
}

const group = 500 // takes that become one, so that a script has room for their ids

// newPlan returns the plan of a request.
func newPlan(takes []store.Take) *plan {
	p := &plan{mode: takes[0].Mode}
	p.Recorded = p.recorded
	if len(takes) == 1 {
		l := takes[0].Limit
		_, p.mode = l.Counted(1, p.mode)
		span := l.Window.Microseconds() + 1
		isExact := int64(l.Quota)+1 < (1<<53)/span // numbers of Lua are exact up to 2^53
		if p.mode == store.ModeCharge && l.Algorithm == store.SlidingLog && !l.Unlimited && isExact {
			p.span, p.limits, p.Script, p.Group, p.Cut = span, []*store.Limit{l}, one, group, cutOne
			p.Tail = []any{l.Quota, l.Window.Microseconds(), redislog.TTL(l)}
			return p
		}
	}
	p.Script = list
	if p.mode == store.ModeCharge {
		p.Group = group
	}
	whole, short := 1, 0
	for i := range takes {
		l := takes[i].Limit
		p.limits = append(p.limits, l)
		p.Tail = append(p.Tail, arguments(l)...)
		whole += 3 + periodSize(l)
		if short++; isCounter(l) {
			short += 1 + periodSize(l)
		}
	}
	p.Cut = func(reply []int64, _ int) int {
		if len(reply) > 0 && reply[0] < 0 {
			return short
		}
		return whole
	}
	p.Tail = append(p.Tail, modes[p.mode], max(takes[0].Share, 1), len(takes))
	return p
}

var modes = [...]string{
	store.ModeCharge: "c", store.ModePeek: "p", store.ModeRecord: "r", store.ModeChargeDenied: "d", store.ModeAtMost: "m",
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

// cutOne is the Cut of plans of the script one.
func cutOne(reply []int64, _ int) int {
	if len(reply) > 0 && reply[0] == 0 {
		return 5
	}
	return 1
}

// appendCosts appends what follows the id of a request.
func (p *plan) appendCosts(b []byte, takes []store.Take) []byte {
	if p.span > 0 {
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

// recorded reports whether a question was recorded, by its reply.
func (p *plan) recorded(q *redisclient.Question) bool {
	switch {
	case p.mode == store.ModePeek:
		return false
	case p.mode != store.ModeCharge || q.Reply[0] > 0 && p.span > 0:
		return true // or a denial was, or nothing
	case p.span == 0:
		return q.Reply[0] < 0 || int64(q.Place) < q.Reply[0]
	}
	return q.Reply[0] == 0 && int64(q.Place) < q.Reply[1]
}

// read fills in the answers to a request. It checks all numbers: another program may have written to the key, and the
// server may be none that runs the scripts.
func (p *plan) read(q *redisclient.Question, takes []store.Take, answers []store.Answer) error {
	good := true
	if p.span > 0 {
		good = p.readOne(q, &takes[0], &answers[0])
	} else {
		good = p.readList(q, takes, answers)
	}
	if !good {
		return redisclient.ProtocolError("numbers out of range in reply %v", q.Reply)
	}
	return nil
}

func (p *plan) readOne(q *redisclient.Question, t *store.Take, a *store.Answer) bool {
	number, place := q.Reply[0], int64(q.Place)
	cost, _ := t.Limit.Counted(t.Cost, p.mode)
	if number == 0 {
		admitted, used, reset, wait := q.Reply[1], q.Reply[2], q.Reply[3], q.Reply[4]
		*a = answer(used+min(admitted, place)*int64(cost), reset, wait, place < admitted)
		return inRange(t.Limit, used, reset, wait) && admitted >= 0 && admitted <= int64(q.StandsFor)
	}
	value := max(number, -number) - 1
	used, reset := value/p.span, value%p.span
	*a = answer(used+place*int64(cost), reset, reset, number > 0)
	quota := int64(t.Limit.Quota)
	return reset > 0 && (number > 0 && used < quota || number < 0 && used == quota)
}

func (p *plan) readList(q *redisclient.Question, takes []store.Take, answers []store.Answer) bool {
	recorded, reply, place := q.Reply[0], q.Reply, int64(q.Place) // in ModeAtMost, recorded are units
	isShort := recorded < 0
	if !isShort {
		reply = reply[1:]
	}
	most := q.StandsFor
	if p.mode == store.ModeAtMost {
		most = least(takes)
	}
	admitted, good, denied := isShort || place < recorded, recorded <= int64(most), false
	for i := range takes {
		l, used, reset, wait := takes[i].Limit, -reply[0]-1, int64(0), int64(0)
		switch {
		case !isShort:
			used, reset, wait, reply = reply[0], reply[1], reply[2], reply[3:]
		case isCounter(l):
			reset, reply = reply[1], reply[2:]
		default:
			span := l.Window.Microseconds() + 1
			used, reset, reply = used/span, used%span, reply[1:]
		}
		good = good && inRange(l, used, reset, wait) && !(isShort && used >= int64(l.Quota))
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
		switch periodSize(l) {
		case 1:
			a.Period, reply = reply[0]*1000, reply[1:]
		case 2:
			a.Period, reply = reply[0]*1000+reply[1], reply[2:]
		}
		answers[i], denied = a, denied || !a.Allowed
	}
	if p.mode == store.ModeChargeDenied && !admitted && !denied {
		// The denial was counted when the command was executed before, and there is room by now.
		answers[0].Allowed, answers[0].Retry = false, time.Microsecond
	}
	return good
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
