package store

import (
	"math"
	"strconv"
	"time"
)

// MaxLimits is how many limits one plan has at most.
const MaxLimits = 8

// Limit is a quota of units in any window of the given length. At instant t the window is (t-Window, t]: an entry
// exactly one Window old has left it. This holds for a [SlidingLog]; see [Algorithm] for the others.
type Limit struct {
	Quota     int           // units, of a TokenBucket those that a full one has
	Window    time.Duration // in whole microseconds; of calendar periods, the longest that there is
	Algorithm Algorithm
	Refill    int       // units that a TokenBucket gains in each Window, evenly; 0 for other algorithms
	Calendar  *Calendar // periods of a FixedWindow, or nil: then period n begins n Windows after the Unix epoch
}

// Algorithm is how the units of a limit are counted. All but SlidingLog keep a few numbers for a key instead of what
// was admitted. So they have no entries, and cannot find a take by its ID: their takes are in [ModeCharge], [ModePeek]
// and [ModeUpTo] only, with plans of one limit without shadows, and there is nothing to settle, list or merge. All
// plans of a key have the same algorithm.
//
// In the answer to such a take, Used is the units that are not available: a take of n units has room if Used+n is at
// most the Quota. Retry is how long it takes until Used+n is at most the Quota if nothing else is admitted, and Reset
// how long it takes, after this take, until Used is one less. A store asks [Plan.Judge] as for a log.
type Algorithm uint8

const (
	// SlidingLog counts exactly, in any window. It is the default.
	SlidingLog Algorithm = iota
	// FixedWindow counts in periods that follow each other. Used is the units of the present one, and all of them are
	// available again when it ends.
	FixedWindow
	// SlidingCounter estimates the units of the window from those of the present period of one Window, and the one
	// before: Used is the former plus the latter times the part of that period which the window still covers, rounded
	// up. Periods are those of a FixedWindow.
	SlidingCounter
	// TokenBucket has units that come back one by one, one in each [Limit.Interval]. It is computed as the generic cell
	// rate algorithm (ITU-T I.371): all that is kept is the instant when the bucket is full again.
	TokenBucket // the last one: checks and tests of all algorithms end with it
)

var algorithms = [...]string{"sliding log", "fixed window", "sliding counter", "token bucket"}

// String is the algorithm in words, such as "fixed window".
func (a Algorithm) String() string { return word(algorithms[:], int(a)) }

// Calendar has the beginnings of periods that follow each other, in Unix microseconds, at whole seconds: of the period
// before the present one, of the present one, of the next one and of the one after that. A store finds the present one
// by its own clock, which may differ from that of the limiter by a period: so it is the first, the second or the third.
// If its clock is even before or after these, it takes the nearest of them.
type Calendar [4]int64

// Interval returns in how many nanoseconds a TokenBucket gains a unit, rounded up.
func (l Limit) Interval() int64 { return (int64(l.Window) + int64(l.Refill) - 1) / int64(l.Refill) }

// String is the limit as core.ParseLimit reads it, such as "100/1m0s".
func (l Limit) String() string {
	if l.Algorithm == TokenBucket {
		return strconv.Itoa(l.Refill) + "/" + l.Window.String() + " burst " + strconv.Itoa(l.Quota)
	}
	return strconv.Itoa(l.Quota) + "/" + l.Window.String()
}

// Plan is what a policy asks of a log. [NewPlan] makes one; it is not changed afterwards, so a store may keep what it
// derives from a plan by the plan's address.
type Plan struct {
	Limits []Limit       // 1 to MaxLimits, valid, in any order; one if it is not a SlidingLog
	Shadow int           // the last so many of Limits neither admit nor deny; see below if all
	Keep   time.Duration // entries younger than this stay in the log; at least the longest window
	Varies bool          // other plans on this log may have another Keep: the longest so far holds for the log
	Bound  int           // units that ModeChargeDenied keeps; at least the largest quota of the limits that decide

	// If no limit decides, there is always room, and the oldest units of the log beyond MaxRecorded are trimmed when a
	// take is recorded.

	// Slots makes the log one of requests in flight: each take counts one unit, whatever its Cost is, and its entry
	// leaves when it is settled to 0, or when it was not renewed for a window (see [Renewer]). Denials are never
	// recorded, so ModeChargeDenied is ModeCharge. ModeRecord, which asks no limit, is ModePeek. A log has plans of
	// slots only, or none.
	Slots bool

	algorithm         Algorithm
	smallest, largest int
	shadows           LimitSet // the limits that do not decide
}

// NewPlan returns a copy of p with Keep and Bound raised to what its limits need. It refers to the same Limits, which
// must not be changed afterwards.
func NewPlan(p Plan) *Plan {
	p.smallest, p.largest, p.shadows, p.algorithm = 0, 0, 0, SlidingLog // p may be a changed copy of another plan
	for i, l := range p.Limits {
		p.Keep, p.algorithm = max(p.Keep, l.Window), l.Algorithm
		if i >= len(p.Limits)-p.Shadow {
			p.shadows |= 1 << i
			continue
		}
		if p.largest = max(p.largest, l.Quota); i == 0 || l.Quota < p.smallest {
			p.smallest = l.Quota
		}
	}
	if len(p.Limits) == p.Shadow {
		p.smallest = math.MaxInt
	}
	p.Bound = max(p.Bound, p.largest)
	return &p
}

// Algorithm returns how the plan's limits count. A plan of an algorithm other than SlidingLog has one limit.
// It is SlidingLog for a plan without limits.
func (p *Plan) Algorithm() Algorithm { return p.algorithm }

// Deciding returns the limits that admit and deny.
func (p *Plan) Deciding() []Limit { return p.Limits[:len(p.Limits)-p.Shadow] }

// Shadows returns the limits that do not decide.
func (p *Plan) Shadows() []Limit { return p.Limits[len(p.Limits)-p.Shadow:] }

// Smallest returns the smallest quota of the limits that decide. It is [math.MaxInt] if none does.
func (p *Plan) Smallest() int { return p.smallest }

// Largest returns the largest quota of the limits that decide.
func (p *Plan) Largest() int { return p.largest }

// NeverFits reports whether a cost is above a quota of the limits that decide, so that no wait will ever let it pass.
// It is false for slots, since each take needs only one.
func (p *Plan) NeverFits(cost int) bool { return cost > p.smallest && !p.Slots }

// Counted returns how many units a take of that Cost counts, and in which mode it is recorded. These are its Cost and
// Mode, unless the plan is of slots.
func (p *Plan) Counted(cost int, mode Mode) (units int, as Mode) {
	if !p.Slots {
		return cost, mode
	}
	return 1, slotModes[mode&7]
}

var slotModes = [8]Mode{
	ModeCharge: ModeCharge, ModePeek: ModePeek, ModeRecord: ModePeek, ModeChargeDenied: ModeCharge, ModeUpTo: ModeUpTo,
}

// Judge fills in Denied and Allowed of an answer whose State[i].Used is set for each limit. A take is allowed if all
// limits that decide have room for what it counts, and always in [ModeRecord] unless the plan is of slots.
//
// In [ModeUpTo] it judges one unit, whatever the cost is; [Plan.Grant] then finds how many units fit.
func (p *Plan) Judge(a *Answer, cost int, mode Mode) {
	if cost, mode = p.Counted(cost, mode); mode == ModeUpTo {
		cost = 1
	}
	var denied LimitSet
	for i := range p.Limits {
		if a.State[i].Used+cost > p.Limits[i].Quota {
			denied |= 1 << i
		}
	}
	a.Denied = denied
	a.Allowed = denied&^p.shadows == 0 || mode == ModeRecord
}

// Grant fills in Granted of an answer in [ModeUpTo] whose State[i].Used is set for each limit: the least that a limit
// that decides has left, from 0 to cost; of slots, cost if there is one. It is 0 exactly if Judge does not allow the
// take.
func (p *Plan) Grant(a *Answer, cost int) {
	most := cost
	for i, l := range p.Deciding() {
		most = min(most, l.Quota-a.State[i].Used)
	}
	if p.Slots && most > 0 {
		most = cost
	}
	a.Granted = max(most, 0)
}
