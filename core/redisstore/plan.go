package redisstore

import (
	"cmp"
	"encoding/binary"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/sashlimit/sash/core/internal/redisclient"
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
	p.Cut, p.Ping = p.cut, takes[0].Limit == &pinged
	for i := range takes {
		p.limits = append(p.limits, takes[i].Limit)
	}
	l := p.limits[0]
	if len(takes) == 1 {
		_, p.mode = l.Counted(1, p.mode)
		isExact := int64(l.Quota)+1 < (1<<53)/span(l) // numbers of Lua are exact up to 2^53
		p.isOne = p.mode == store.ModeCharge && l.Algorithm == store.SlidingLog && !l.Unlimited && isExact
	}
	if p.mode == store.ModeCharge && !slices.ContainsFunc(p.limits, overflows) {
		p.Group = group
	}
	if p.isOne {
		p.Script, p.Tail = one, arguments(l)[1:]
		return p
	}
	p.Script = list
	for _, l := range p.limits {
		p.Tail = append(p.Tail, arguments(l)...)
	}
	p.Tail = append(p.Tail, modes[p.mode], max(takes[0].Share, 1), len(takes))
	return p
}

// overflows reports whether units of a take may be lost, since a bucket does not become emptier than empty. Then those
// of a group do not come back one after the other.
func overflows(l *store.Limit) bool { return l.Unlimited && l.Algorithm == store.TokenBucket }

// cut returns how many numbers a reply has.
func (p *plan) cut(reply []int64, _ int) int {
	if len(reply) > 0 && reply[0] < 0 {
		return len(p.limits)
	}
	n := 1 + 3*len(p.limits)
	for _, l := range p.limits {
		if isCounter(l) {
			n += 2
		}
	}
	return n
}

var modes = [...]string{
	store.ModeCharge: "c", store.ModePeek: "p", store.ModeRecord: "r", store.ModeChargeDenied: "d",
	store.ModeAtMost: "m",
}

// arguments returns what scripts know of a limit.
func arguments(l *store.Limit) []any {
	letter, window, more := "l", l.Window.Microseconds(), any(redisclient.TTL(l.Window))
	switch l.Algorithm {
	case store.TokenBucket:
		parts := bucketParts(l)
		letter, window, more = "t", l.Interval()*parts/1000, parts
	case store.SlidingCounter:
		letter, more = "s", ""
	case store.FixedWindow:
		var calendar []byte
		if l.Calendar != nil {
			for _, instant := range l.Calendar {
				calendar = binary.BigEndian.AppendUint64(calendar, uint64(instant))
			}
		}
		letter, more = "f", string(calendar)
	case store.SlidingLog:
		if l.Permits {
			letter = "p"
		}
	}
	if l.Unlimited && !l.Permits {
		letter = strings.ToUpper(letter)
	}
	return []any{letter, l.Quota, window, more}
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

// appendCosts appends what follows the id of a request.
func (p *plan) appendCosts(b []byte, takes []store.Take) []byte {
	if p.isOne {
		if cost, _ := takes[0].Limit.Counted(takes[0].Cost, p.mode); cost > 1 {
			b = redisclient.AppendUnits(b, cost)
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
		b = redisclient.AppendUnits(b, cost)
	}
	return b
}

// least is how many units a request in ModeAtMost gets at most.
func least(takes []store.Take) int {
	return slices.MinFunc(takes, func(a, b store.Take) int { return cmp.Compare(a.Cost, b.Cost) }).Cost
}

// span is by what a number of a short reply has the units that are used.
func span(l *store.Limit) int64 { return l.Window.Microseconds() + 1 }

// short returns what a number of a short reply tells.
func short(l *store.Limit, number int64) (used, reset int64) {
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
		if isShort {
			used, reset = short(l, reply[0])
			wait, reply = reset, reply[1:]
		} else {
			used, reset, wait, reply = reply[0], reply[1], reply[2], reply[3:]
		}
		good = good && inRange(l, used, reset, wait) && !(isShort && used > int64(l.Quota))
		cost, mode := l.Counted(takes[i].Cost, takes[i].Mode)
		before := min(recorded, place) * int64(cost) // units of those before it in the group
		if mode == store.ModeAtMost {
			cost = 1
		}
		a := store.Answer{Known: true, Used: int(used + before), Reset: micros(reset)}
		if a.Allowed = admitted && mode != store.ModePeek || l.HasRoom(a.Used, cost); !a.Allowed {
			a.Retry = micros(wait)
		}
		if mode == store.ModeAtMost {
			a.Granted = int(recorded)
		}
		if isCounter(l) {
			a.Period, reply = 1000*reply[0]+reply[1], reply[2:]
		}
		if l.Algorithm == store.TokenBucket { // those before it in the group come back first
			a.Period += before * l.Interval()
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

func micros(n int64) time.Duration { return time.Duration(n) * time.Microsecond }

// inRange reports whether numbers of a reply can be.
func inRange(l *store.Limit, used, reset, wait int64) bool {
	longest := l.Window.Microseconds() + 1e6
	if isCounter(l) {
		longest = math.MaxInt64 / 1000
	}
	return used >= 0 && used < 1<<53 && reset >= 0 && reset <= longest && wait >= 0 && wait <= longest
}
