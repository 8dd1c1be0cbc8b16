package coretest

import (
	"fmt"
	"slices"
	"time"

	"github.com/sashlimit/sash/core/store"
)

// worldKind is what the worlds of one kind are made of.
type worldKind struct {
	name    string
	plans   [2]*store.Plan
	takes   []operation // mode and cost
	logs    []logSet    // of takes and resets
	settles []int       // costs to which takes are settled
	steps   []time.Duration
	lease   time.Duration // of bookings; 0 if there are none
	resets  bool
	alike   bool // both logs have equal limits
	units   bool // the logs are of different units: each is settled by itself, also if the take was not about it
}

const worldWindow = 10 * time.Millisecond

// worldKinds returns all kinds. In the steps the windows of a kind have their edges: a sum of three of them is each
// window, and each window less a microsecond.
func worldKinds() []*worldKind {
	plan := func(shadow, bound int, limits ...store.Limit) *store.Plan {
		return store.NewPlan(store.Plan{Limits: limits, Shadow: shadow, Bound: bound})
	}
	// over makes plans of one log, of which an override may replace the one by the other.
	over := func(shadow int, limit store.Limit) *store.Plan {
		return store.NewPlan(store.Plan{Limits: []store.Limit{limit}, Shadow: shadow, Keep: 2 * worldWindow, Bound: 4})
	}
	two, three := store.Limit{Quota: 2, Window: worldWindow}, store.Limit{Quota: 3, Window: 2 * worldWindow}
	modes := []operation{
		{mode: store.ModeCharge, cost: 1}, {mode: store.ModeCharge, cost: 2},
		{mode: store.ModeChargeDenied, cost: 1}, {mode: store.ModeUpTo, cost: 2},
	}
	all := append(slices.Clip(modes), operation{mode: store.ModeChargeDenied, cost: 2},
		operation{mode: store.ModeUpTo, cost: 3}, operation{mode: store.ModeRecord, cost: 1})
	edges := []time.Duration{0, time.Microsecond, worldWindow - time.Microsecond, worldWindow}
	first := []logSet{1}
	// Two bookings of two units fit, and the rest.
	const lease = worldWindow / 2
	many := store.Limit{Quota: 18, Window: worldWindow}
	return []*worldKind{
		{
			name: "one limit", plans: [2]*store.Plan{plan(0, 0, two)}, takes: all, logs: first,
			settles: []int{0, 1, 3}, steps: edges, resets: true,
		},
		{
			name: "two limits", plans: [2]*store.Plan{plan(0, 0, two, three)}, takes: modes, logs: first,
			settles: []int{0, 1}, steps: edges,
		},
		{
			name: "shadow and bound", plans: [2]*store.Plan{plan(1, 3, two, three)}, takes: modes, logs: first,
			settles: []int{0, 3}, steps: edges,
		},
		{
			name: "two logs alike", plans: [2]*store.Plan{plan(0, 0, two), plan(0, 0, two)}, takes: modes,
			logs: []logSet{1, 2, 3}, settles: []int{0}, steps: edges[:3], resets: true, alike: true,
		},
		{
			name: "two logs", plans: [2]*store.Plan{plan(0, 0, two), plan(0, 0, three)}, takes: modes[:4:4],
			logs: []logSet{1, 2, 3}, settles: []int{0}, steps: edges[2:],
		},
		{
			name: "two units", plans: [2]*store.Plan{plan(0, 0, two), plan(0, 0, three)}, takes: []operation{
				{mode: store.ModeCharge, cost: 1, cost2: 2}, {mode: store.ModeCharge, cost: 2, cost2: 1},
				{mode: store.ModeChargeDenied, cost: 1, cost2: 2},
			},
			logs: []logSet{1, 2, 3}, settles: []int{0, 3}, steps: edges[2:], units: true,
		},
		{
			name: "overrides", plans: [2]*store.Plan{over(0, two)}, takes: []operation{
				{mode: store.ModeCharge, cost: 1}, {mode: store.ModeChargeDenied, cost: 2},
				{mode: store.ModeCharge, cost: 1, over: over(0, store.Limit{Quota: 4, Window: worldWindow})},
				{mode: store.ModeCharge, cost: 1, over: over(0, store.Limit{Quota: 1, Window: worldWindow})},
				{mode: store.ModeCharge, cost: 1, over: over(0, three)},
				{mode: store.ModeCharge, cost: 2, over: over(1, two)},
			},
			logs: first, settles: []int{0}, steps: edges[2:],
		},
		{
			name: "bookings", plans: [2]*store.Plan{plan(0, 0, many), plan(0, 0, many)}, takes: []operation{
				{mode: store.ModeCharge, cost: 1}, {mode: store.ModeCharge, cost: 14},
			},
			logs: []logSet{1, 2, 3}, settles: []int{0, 1}, lease: lease,
			steps: []time.Duration{0, lease - time.Microsecond, lease, worldWindow}, resets: true, alike: true,
		},
	}
}

// keepOneLimit leaves takes and settlements of one unit in a kind with one log of one limit. It reports whether this is
// such a kind.
func (k *worldKind) keepOneLimit() bool {
	k.takes = slices.DeleteFunc(slices.Clone(k.takes), func(o operation) bool { return o.cost > 1 })
	k.settles = slices.DeleteFunc(slices.Clone(k.settles), func(cost int) bool { return cost > 1 })
	return k.plans[1] == nil && len(k.plans[0].Limits) == 1 && k.name != "overrides"
}

// logSet is a set of logs: bit 0 is the first, bit 1 the second.
type logSet uint8

func (s logSet) has(log int) bool { return s>>log&1 == 1 }

func (s logSet) String() string { return [...]string{"none", "log 1", "log 2", "both logs"}[s] }

// operation is one step of a world.
type operation struct {
	what  operationKind
	logs  logSet
	mode  store.Mode
	cost  int         // of a take and of a settlement
	cost2 int         // of a take in the second log, if it is another one there
	over  *store.Plan // of a take from the first log, if an override of its key is in force
	of    int         // the number of the take or booking that is settled or executed again; of a booking, or -1
	used  int         // of a booking, to which it settles an earlier one
}

// costIn returns the cost of a take in a log.
func (o operation) costIn(log int) int {
	if log == 1 && o.cost2 > 0 {
		return o.cost2
	}
	return o.cost
}

type operationKind uint8

const (
	taking operationKind = iota
	settling
	again
	resetting
	booking // takes a unit, or none, and books two
)

func (o operation) String() string {
	switch o.what {
	case taking:
		over := ""
		if o.over != nil {
			over = fmt.Sprintf(" by %v, %d of which decide", o.over.Limits, len(o.over.Deciding()))
		}
		return fmt.Sprintf("%v of %d and %d from %v%s", o.mode, o.cost, o.costIn(1), o.logs, over)
	case settling:
		return fmt.Sprintf("settle operation %d to %d in %v", o.of+1, o.cost, o.logs)
	case again:
		return fmt.Sprintf("operation %d again", o.of+1)
	case resetting:
		return fmt.Sprintf("reset %v", o.logs)
	case booking:
		settles := ""
		if o.of >= 0 {
			settles = fmt.Sprintf("settle operation %d to %d, ", o.of+1, o.used)
		}
		return fmt.Sprintf("%stake %d and book in %v", settles, o.cost, o.logs)
	}
	return "unknown"
}

// sequences returns all sequences of n operations that begin with those given.
func (e *explorer) sequences(begin []operation, n int) (all [][]operation) {
	if n == 0 {
		return [][]operation{slices.Clone(begin)}
	}
	for _, o := range e.next(begin) {
		all = append(all, e.sequences(append(slices.Clip(begin), o), n-1)...)
	}
	return all
}

// next returns the operations that may follow others. A take that was settled is not executed again, since its caller
// has had the reply.
func (e *explorer) next(before []operation) (all []operation) {
	for _, logs := range e.logs {
		// Where the logs are alike, the first operation that is not about both is about the first log.
		both := func(o operation) bool { return o.what == settling || o.what == again || o.logs == 3 }
		if e.alike && logs == 2 && !slices.ContainsFunc(before, func(o operation) bool { return !both(o) }) {
			continue
		}
		if logs == 3 && !e.several {
			continue
		}
		for _, take := range e.takes {
			take.logs = logs
			all = append(all, take)
		}
		if e.resets && logs != 3 && len(before) > 0 {
			all = append(all, operation{what: resetting, logs: logs})
		}
		if e.lease > 0 && logs != 3 {
			all = append(all, operation{what: booking, logs: logs, of: -1},
				operation{what: booking, logs: logs, cost: 1, of: -1})
		}
	}
	for i, o := range before {
		if o.what != taking && o.what != booking {
			continue
		}
		settled := func(later operation) bool {
			return (later.what == settling || later.what == booking) && later.of == i
		}
		isSettled := slices.ContainsFunc(before, settled)
		if o.what == booking && !isSettled {
			for _, used := range e.settles {
				all = append(all, operation{what: booking, logs: o.logs, cost: 1, of: i, used: used})
			}
		}
		for _, logs := range e.settledLogs(o) {
			for _, cost := range e.settles {
				if cost > 0 || o.logs&logs != 0 {
					all = append(all, operation{what: settling, logs: logs, of: i, cost: cost})
				}
			}
		}
		if e.repeats && !isSettled {
			all = append(all, operation{what: again, of: i})
		}
	}
	return all
}

// settledLogs returns the logs that a take may be settled in.
func (e *explorer) settledLogs(take operation) []logSet {
	switch {
	case e.settler == nil:
		return nil
	case !e.units:
		return []logSet{take.logs}
	case take.logs == 3 || e.merger != nil:
		return []logSet{1, 2}
	default:
		return []logSet{take.logs}
	}
}

// allSteps returns all sequences of n steps.
func (e *explorer) allSteps(n int) [][]time.Duration {
	all := [][]time.Duration{nil}
	for range n {
		var longer [][]time.Duration
		for _, steps := range all {
			for _, step := range e.steps {
				longer = append(longer, append(slices.Clip(steps), step))
			}
		}
		all = longer
	}
	return all
}
