package memory

import (
	"math"
	"time"

	"github.com/sashlimit/sash/core/internal/counter"
	"github.com/sashlimit/sash/core/store"
)

// A limit of another algorithm than the sliding log has a keyLog without entries. Its numbers are where a log has its
// newest entries, so that logs are no longer than they were. They are those of the wall clock, as calendars are.
const (
	markNumber = iota
	unitsNumber
	beforeNumber
	latestNumber
	endNumber // the instant on the store's clock from which on the others are forgotten
)

// endSlack is how much later than by the wall clock numbers are forgotten by the store's clock, since the two may not
// run alike. So it is the wall clock that ends a period, unless that was set back.
const endSlack = time.Second

// isCounter reports whether a plan is of another algorithm than the sliding log.
func isCounter(p *store.Plan) bool { return p.Algorithm() != store.SlidingLog }

// look returns the numbers of a log as the plan's limit sees them at that instant of the wall clock. The log may be
// nil.
func (l *keyLog) look(p *store.Plan, wall int64) counter.View {
	var s counter.State
	if l != nil && l.isCounter && l.Len() == 0 && l.now < l.Spare()[endNumber] {
		n := l.Spare()
		s = counter.State{Mark: n[markNumber], Units: n[unitsNumber], Before: n[beforeNumber], Latest: n[latestNumber]}
	}
	return s.At(&p.Limits[0], wall)
}

// count answers a take, of which cost units must fit, by a limit of another algorithm than the sliding log. The log is
// nil for a peek at a key that has none.
func (l *keyLog) count(p *store.Plan, wall int64, cost int, mode store.Mode, a *store.Answer) {
	v := l.look(p, wall)
	if l == nil {
		countIn(&v, p, cost, store.ModePeek, a)
		return
	}
	added, n := countIn(&v, p, cost, mode, a), l.Spare()
	if a.Retry > 0 && l.isCounter { // the wall clock may have been set back
		left := time.Duration(n[endNumber] - l.now).Truncate(time.Microsecond)
		a.Retry = min(a.Retry, max(left, 0)+time.Microsecond)
	}
	if !added { // a state that has moved is forgotten by the store's own clock
		return
	}
	if l.isCounter = true; l.Len() > 0 {
		l.Drop(math.MaxInt64) // a key has plans of one algorithm, so these say nothing any more
	}
	n[markNumber], n[unitsNumber], n[beforeNumber], n[latestNumber] = v.Mark, v.Units, v.Before, v.Latest
	n[endNumber] = l.now + (v.Ends()-wall)*int64(time.Microsecond) + int64(endSlack)
}

// countIn does the same in v, and reports whether it has added units.
func countIn(v *counter.View, p *store.Plan, cost int, mode store.Mode, a *store.Answer) (added bool) {
	a.State[0].Used = v.Used()
	p.Judge(a, cost, mode)
	units := cost
	if mode == store.ModeUpTo {
		p.Grant(a, cost)
		units, cost = a.Granted, 1
	}
	switch {
	case a.Allowed && mode != store.ModePeek:
		v.Add(units)
		added = true
	case !a.Allowed && !p.NeverFits(cost):
		a.Retry = v.Until(p.Limits[0].Quota - cost)
	}
	if used := v.Used(); used > 0 {
		a.State[0].Reset = v.Until(used - 1)
	}
	return added
}

// isVoid reports whether the log says no more than a new one.
func (l *keyLog) isVoid() bool {
	return l.Len() == 0 && (!l.isCounter || l.now >= l.Spare()[endNumber])
}
