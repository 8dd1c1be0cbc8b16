package memory

import (
	"time"

	"github.com/sashlimit/sash/core/internal/counter"
	"github.com/sashlimit/sash/core/store"
)

// The numbers of a counting algorithm are where a log has its newest entries, so that logs are no longer than they
// were. They are those of the wall clock, as calendars are.
const (
	markNumber = iota
	unitsNumber
	beforeNumber
	endNumber // the instant on the store's clock from which on the others are forgotten
)

// endSlack is how much later than by the wall clock numbers are forgotten by the store's clock, since the two may not
// run alike. So it is the wall clock that ends a period, unless that was set back.
const endSlack = time.Second

// counts reports whether the log is of a counting algorithm.
func (l *log) counts() bool { return l.limit.Algorithm != store.SlidingLog }

// view returns the numbers of a log as a limit sees them at an instant of its entry's. By the wall clock it never runs
// backwards either, unless that was set back. The log may be nil.
func (l *log) view(limit *store.Limit, now instant, at int64) counter.View {
	var s counter.State
	if l != nil && at < l.Spare()[endNumber] {
		n := l.Spare()
		s = counter.State{Mark: n[markNumber], Units: n[unitsNumber], Before: n[beforeNumber]}
	}
	return s.At(limit, (at+now.wall)/int64(time.Microsecond))
}

// keep keeps the numbers.
func (l *log) keep(v *counter.View, at int64) {
	n := l.Spare()
	n[markNumber], n[unitsNumber], n[beforeNumber] = v.Mark, v.Units, v.Before
	n[endNumber] = at + int64(v.Lasts()+endSlack)
}

// count is decide for a limit of a counting algorithm.
func (l *log) count(limit *store.Limit, now instant, at int64, units, more int, mode store.Mode, a *store.Answer) {
	v := l.view(limit, now, at)
	*a = store.Answer{Known: true, Used: v.Used(), Period: v.Period()}
	a.Allowed = limit.HasRoom(a.Used+more, units) || mode == store.ModeRecord
	switch {
	case a.Allowed && mode != store.ModePeek:
		v.Add(units)
		l.keep(&v, at)
	case a.Allowed || limit.NeverFits(units):
	case more+units > limit.Quota: // until a key has a log of its own
		a.Retry = limit.Window
	default:
		a.Retry = v.Until(limit.Quota - more - units)
		if l != nil { // the wall clock may have been set back
			end := l.Spare()[endNumber]
			a.Retry = min(a.Retry, max(time.Duration(end-at).Truncate(time.Microsecond), 0)+time.Microsecond)
			if v.Moved && mode != store.ModePeek {
				l.keep(&v, at)
				l.Spare()[endNumber] = end
			}
		}
	}
	if used := v.Used(); used > 0 {
		a.Reset = v.Until(used - 1)
	}
}
