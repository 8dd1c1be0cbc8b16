package store

import (
	"math"
	"strconv"
	"time"
)

// MaxLimits is how many limits one plan has at most.
const MaxLimits = 8

// Limit is a quota of units in any window of the given length. At instant t the window is (t-Window, t]: an entry
// exactly one Window old has left it.
type Limit struct {
	Quota  int
	Window time.Duration // in whole microseconds
}

// denies reports whether a limit whose window holds so many units has no room for cost more.
func (l Limit) denies(used, cost int) bool { return used+cost > l.Quota }

// String is the limit as core.ParseLimit reads it, such as "100/1m0s".
func (l Limit) String() string { return strconv.Itoa(l.Quota) + "/" + l.Window.String() }

// Plan is what a policy asks of a log. [NewPlan] makes one; it is not changed afterwards, so a store may keep what it
// derives from a plan by the plan's address.
type Plan struct {
	Limits []Limit       // 1 to MaxLimits, valid, in any order
	Shadow int           // the last so many of Limits neither admit nor deny; if all, there is always room
	Keep   time.Duration // entries younger than this stay in the log; at least the longest window
	Varies bool          // other plans on this log may have another Keep: the longest so far holds for the log
	Bound  int           // units that ModeChargeDenied keeps; at least the largest quota of the limits that decide

	// Slots makes the log one of requests in flight: each take counts one unit, whatever its Cost is, and its entry
	// leaves when it is settled to 0, or when it was not renewed for a window (see [Renewer]). Denials are never
	// recorded, so ModeChargeDenied is ModeCharge. ModeRecord, which asks no limit, is ModePeek. A log has plans of
	// slots only, or none.
	Slots bool

	smallest, largest int
}

// NewPlan returns a copy of p with Keep and Bound raised to what its limits need. It refers to the same Limits, which
// must not be changed afterwards.
func NewPlan(p Plan) *Plan {
	p.smallest, p.largest = 0, 0 // p may be a changed copy of another plan
	for i, l := range p.Limits {
		p.Keep = max(p.Keep, l.Window)
		if i >= len(p.Limits)-p.Shadow {
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

// Judge fills in Denied and Allowed of an answer of which State[i].Used is known for each limit. A take is allowed if
// all limits that decide have room for what it counts, and always in [ModeRecord] unless the plan is of slots.
//
// In [ModeUpTo] it judges one unit, whatever the cost is; [Plan.Grant] then tells how many there are.
func (p *Plan) Judge(a *Answer, cost int, mode Mode) {
	if cost, mode = p.Counted(cost, mode); mode == ModeUpTo {
		cost = 1
	}
	var denied LimitSet
	for i := range p.Limits {
		if p.Limits[i].denies(a.State[i].Used, cost) {
			denied |= 1 << i
		}
	}
	a.Denied = denied
	a.Allowed = denied&(1<<(len(p.Limits)-p.Shadow)-1) == 0 || mode == ModeRecord
}

// Grant fills in Granted of an answer in [ModeUpTo] of which State[i].Used is known for each limit: the least that a
// limit that decides has left, from 0 to cost; of slots, cost if there is one. It is 0 exactly if Judge does not allow
// the take.
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
