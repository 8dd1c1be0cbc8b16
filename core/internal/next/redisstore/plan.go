package redisstore

import (
	"encoding/binary"
	"math"
	"slices"
	"time"

	"github.com/sashlimit/sash/core/internal/next/redisclient"
	"github.com/sashlimit/sash/core/internal/next/store"
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
			p.Tail = []any{l.Quota, l.Window.Microseconds(), ttl(l)}
			return p
		}
	}
	p.Script = list
	if p.mode == store.ModeCharge {
		p.Group = group
	}
	size := 1
	for i := range takes {
		l := takes[i].Limit
		p.limits = append(p.limits, l)
		p.Tail = append(p.Tail, arguments(l)...)
		size += numbersOf(l)
	}
	p.Cut = func([]int64, int) int { return size }
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
		return []any{"t", l.Quota, l.Interval() / 1000, l.Interval() % 1000}
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
	return []any{letter, l.Quota, l.Window.Microseconds(), ttl(l)}
}

// ttl is the TTL of a log in milliseconds. It is one second more than the window, since Redis counts a TTL from the
// start of the script in milliseconds, and the log must not expire before its entries.
func ttl(l *store.Limit) int64 { return l.Window.Milliseconds() + 1000 }

func isCounter(l *store.Limit) bool { return l.Algorithm != store.SlidingLog }

// numbersOf is how many numbers the script list replies about a limit.
func numbersOf(l *store.Limit) int {
	if isCounter(l) {
		return 5
	}
	return 3
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
			b = appendUnits(b, cost)
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
		b = appendUnits(b, cost)
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

// appendUnits appends a number of units as scripts have it in an argument, and logs in a member.
func appendUnits(b []byte, n int) []byte {
	return binary.BigEndian.AppendUint32(b, uint32(min(max(n, 0), math.MaxUint32)))
}

// recorded reports whether a question was recorded, by its reply.
func (p *plan) recorded(q *redisclient.Question) bool {
	switch {
	case p.mode == store.ModePeek:
		return false
	case p.mode != store.ModeCharge || q.Reply[0] > 0 && p.span > 0:
		return true // or a denial was, or nothing
	case p.span == 0:
		return int64(q.Place) < q.Reply[0]
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
	reply := q.Reply
	number := reply[0]
	if number == 0 {
		cost, _ := t.Limit.Counted(t.Cost, p.mode)
		*a = store.Answer{
			Known: true, Allowed: int64(q.Place) < reply[1], Used: int(reply[2] + min(reply[1], int64(q.Place))*int64(cost)),
			Reset: micros(reply[3]),
		}
		if !a.Allowed {
			a.Retry = micros(reply[4])
		}
		return inRange(t.Limit, reply[2:5])
	}
	value := max(number, -number) - 1
	*a = store.Answer{Known: true, Allowed: number > 0, Used: int(value / p.span), Reset: micros(value % p.span)}
	if number < 0 {
		a.Retry = a.Reset
	}
	return a.Reset > 0 && a.Used <= t.Limit.Quota
}

func (p *plan) readList(q *redisclient.Question, takes []store.Take, answers []store.Answer) bool {
	recorded, reply, place := q.Reply[0], q.Reply[1:], int64(q.Place)
	admitted, good, denied := place < recorded, true, false // in ModeAtMost, recorded are units
	for i := range takes {
		t, a := &takes[i], &answers[i]
		l := t.Limit
		cost, mode := l.Counted(t.Cost, t.Mode)
		good = good && inRange(l, reply)
		*a = store.Answer{
			Known: true, Allowed: admitted, Used: int(reply[0]), Reset: micros(reply[1]), Retry: micros(reply[2]),
		}
		switch mode {
		case store.ModeCharge, store.ModeChargeDenied:
			a.Used += int(min(recorded, place)) * cost
		case store.ModeAtMost:
			cost, a.Granted = 1, int(recorded)
		case store.ModeRecord:
		case store.ModePeek:
			a.Allowed = false
		}
		if a.Allowed = a.Allowed || l.HasRoom(a.Used, cost); a.Allowed {
			a.Retry = 0
		}
		denied = denied || !a.Allowed
		if isCounter(l) {
			a.Period = reply[3]*1000 + reply[4]
		}
		reply = reply[numbersOf(l):]
	}
	if p.mode == store.ModeChargeDenied && !admitted && !denied {
		// The denial was counted when the command was executed before, and there is room by now.
		answers[0].Allowed, answers[0].Retry = false, time.Microsecond
	}
	return good
}

func micros(n int64) time.Duration { return time.Duration(n) * time.Microsecond }

// inRange reports whether used, reset and wait of a reply can be.
func inRange(l *store.Limit, reply []int64) bool {
	longest := l.Window.Microseconds() + 1e6
	if isCounter(l) {
		longest = math.MaxInt64 / 1000
	}
	used, reset, wait := reply[0], reply[1], reply[2]
	return used >= 0 && used < 1<<53 && reset >= 0 && reset <= longest && wait >= 0 && wait <= longest
}
