// Package question has what the logs of a plan are asked about a request, and what follows from their answers.
package question

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"time"
	"unsafe"

	"github.com/sashlimit/sash/core/internal/guard"
	"github.com/sashlimit/sash/core/internal/plan"
	"github.com/sashlimit/sash/core/internal/slots"
	"github.com/sashlimit/sash/core/store"
)

// Question is what the logs of a plan are asked about a request, and have answered.
type Question struct {
	Plan   *plan.Plan   // nil if no limit was evaluated, as for a skipped request
	Take   store.Take   // of the limiter's key: what the first log was asked, unless More is set
	Answer store.Answer // of the logs
	More   *Logs        // nil if there is one log, which is that of the limiter's key
	Taken  int          // units that were recorded, of the unit of costs without a name
	Leased guard.Use    // unless More is set
}

// Logs is what each log is asked, and has answered. One log of the limiter's key needs none: its take and answer are
// those of the [Question], so that they are not allocated.
type Logs struct {
	Logs    []*plan.Log // of the plan; those that are not asked, as the request costs none of their units, are last
	Takes   []store.Take
	Answers []store.Answer
	Asked   int // how many logs are asked

	At     time.Time   // when the request was decided, if some logs were not asked
	Held   *slots.Held // the permits that the request holds, or nil
	Leased []guard.Use // of each log that was asked, or nil
	Unread error       // why the key of a log that is left out could not be read, or nil
	Cached bool        // the answer is a denial from memory, which knows only those logs that deny

	costs    [store.MaxLimits]int // units of each limit, 1 of one of permits; 0 if it is not asked
	recorded bool                 // units were recorded, or would be if the request cost any
}

// NewLogs makes them for logs that are all asked. Most requests have two, which take one allocation.
func NewLogs(logs []*plan.Log) *Logs {
	n := len(logs)
	if n > 2 {
		return &Logs{Logs: logs, Takes: make([]store.Take, n), Answers: make([]store.Answer, n), Asked: n}
	}
	two := new(struct {
		Logs

		takes   [2]store.Take
		answers [2]store.Answer
	})
	two.Logs = Logs{Logs: logs, Takes: two.takes[:n], Answers: two.answers[:n], Asked: n}
	return &two.Logs
}

// Price finds the logs that a request is asked about: those of units of which it costs something. Of units that costs
// does not name it costs unnamed, but one request; the unit without a name costs what the take does. The limits of
// requests in flight are always asked.
func (q *Question) Price(pl *plan.Plan, costs map[string]int, unnamed int) {
	if pl.Units == nil && q.Take.Cost != 0 { // then that is all
		return
	}
	var asked, free []*plan.Log
	var units [store.MaxLimits]int // of asked
	for _, log := range pl.Logs {
		cost, named := costs[plan.UnitName(log.Unit())]
		switch {
		case log.InFlight():
			cost = 1
		case log.Unit() == pl.Unit:
			cost = q.Take.Cost
		case !named && log.Unit() == "" && q.Take.Mode != store.ModeUpTo: // which only a shadow counts
			cost = 1
		case !named:
			cost = unnamed
		}
		if cost == 0 {
			free = append(free, log)
			continue
		}
		units[len(asked)] = min(cost, MostCost)
		asked = append(asked, log)
	}
	q.More = NewLogs(append(asked, free...))
	q.More.Asked = len(asked)
	for i := range asked {
		q.More.Takes[i].Cost = units[i]
	}
}

// LeaveOutUnread leaves out the logs whose keys could not be read, for the last of which err is the reason.
func (q *Question) LeaveOutUnread(err error) {
	was, asked := q.More, 0
	var logs []*plan.Log
	var takes []store.Take
	for i, log := range was.Logs {
		if was.Takes[i].Key.Namespace == nil {
			continue
		}
		if logs, takes = append(logs, log), append(takes, was.Takes[i]); i < was.Asked {
			asked++
		}
	}
	q.More = NewLogs(logs)
	q.More.Asked, q.More.Unread = asked, err
	copy(q.More.Takes, takes)
}

// Replan asks the logs of another plan in place of those of the plan, each for the units of its key and unit.
func (q *Question) Replan(pl *plan.Plan) {
	was := q.More
	if was == nil && len(pl.Logs) == 1 {
		q.Plan, q.Take.Key.Namespace = pl, pl.Logs[0].Space.Namespace
		return
	}
	if was == nil {
		was = &Logs{Logs: q.Plan.Logs, Takes: []store.Take{q.Take}, Asked: 1}
	}
	before := func(log *plan.Log) int {
		return slices.IndexFunc(was.Logs, func(old *plan.Log) bool {
			return old.Key == log.Key && old.Unit() == log.Unit() && old.InFlight() == log.InFlight()
		})
	}
	logs := slices.DeleteFunc(slices.Clone(pl.Logs), func(log *plan.Log) bool { return before(log) < 0 }) // unread
	slices.SortStableFunc(logs, func(a, b *plan.Log) int { return cmp.Compare(before(a), before(b)) })
	q.Plan, q.More = pl, NewLogs(logs)
	q.More.Asked, q.More.Held, q.More.Unread = 0, was.Held, was.Unread
	for i, log := range logs {
		from := before(log)
		t := &was.Takes[from]
		q.More.Takes[i].Key = store.Key{Namespace: log.Space.Namespace, Identity: t.Key.Identity}
		if q.More.Takes[i].Cost = t.Cost; from < was.Asked {
			q.More.Asked++
		}
	}
}

// Prepare sets what the logs are asked. The costs of units with a name were set before.
func (q *Question) Prepare() {
	m, never := q.More, false
	m.Cached = false
	clear(m.costs[:])
	for i, log := range m.Logs[:m.Asked] {
		t, units := &m.Takes[i], 1
		t.Plan, t.ID = log.StorePlan(), 0
		if t.Mode = q.Take.Mode; log.InFlight() {
			t.Cost = max(q.Take.Cost, 1)
		} else {
			if log.Unit() == q.Plan.Unit {
				t.Cost = q.Take.Cost
			}
			units = t.Cost
		}
		never = never || t.Plan.NeverFits(t.Cost)
		for _, at := range log.At {
			m.costs[at] = units
		}
	}
	if never && q.Take.Mode == store.ModeChargeDenied { // each log knows its own limits only
		for i := range m.Takes[:m.Asked] {
			m.Takes[i].Mode = store.ModeCharge
		}
	}
	if m.Asked < len(m.Logs) {
		m.At = time.Now()
		for i := range m.Takes[m.Asked:] {
			m.Takes[m.Asked+i].ID = rand.Uint64() | 1 // of an entry that is recorded later
		}
	}
}

// Asked returns what each log is asked, and its answer. The slices are q's own memory, so they must not be kept: q
// would be on the heap.
func (q *Question) Asked() ([]store.Take, []store.Answer) {
	if q.More != nil {
		return q.More.Takes[:q.More.Asked], q.More.Answers[:q.More.Asked]
	}
	return unsafe.Slice(&q.Take, 1), unsafe.Slice(&q.Answer, 1) //nolint:gosec // a slice of a variable is safe
}

// Logs returns the logs of the plan: first those that are asked.
func (q *Question) Logs() []*plan.Log {
	if q.More != nil {
		return q.More.Logs
	}
	return q.Plan.Logs
}

// At returns what a log is asked, and its answer. The log is an index of Logs.
func (q *Question) At(log int) (*store.Take, *store.Answer) {
	if q.More != nil {
		return &q.More.Takes[log], &q.More.Answers[log]
	}
	return &q.Take, &q.Answer
}

// LeasedOf returns what was spent of a lease in a log, which is an index of Logs.
func (q *Question) LeasedOf(log int) (of guard.Use) {
	switch {
	case q.More == nil:
		return q.Leased
	case log < len(q.More.Leased):
		return q.More.Leased[log]
	}
	return of
}

// Held returns the permits that the request holds, or nil.
func (q *Question) Held() *slots.Held {
	if q.More == nil {
		return nil
	}
	return q.More.Held
}

// Clone makes q independent of the memory that its keys were read from.
func (q *Question) Clone() {
	q.Take.Key.Identity = q.Take.Key.Clone()
	if q.More == nil {
		return
	}
	own := NewLogs(q.More.Logs) // others may use the old ones
	takes, answers := own.Takes, own.Answers
	*own = *q.More
	own.Takes, own.Answers = takes, answers
	copy(own.Takes, q.More.Takes)
	for i := range own.Takes {
		own.Takes[i].Key.Identity = own.Takes[i].Key.Clone()
	}
	q.More = own
}
