package memory

import (
	"time"

	"github.com/sashlimit/sash/core/internal/next/store"
)

// decide answers a take at instant at, which that many units must fit into the log beside more units. It adds an entry
// with that ID if the take is recorded in this mode. It returns the ID, which the log assigns to an entry if it is 0.
// The log is nil for a peek at one that is not there.
func (l *log) decide(
	limit *store.Limit, now instant, at int64, id uint64, units, more int, mode store.Mode, a *store.Answer,
) uint64 {
	if limit.Algorithm != store.SlidingLog {
		l.count(limit, now, at, units, more, mode, a)
		return id
	}
	if l == nil {
		*a = store.Answer{Known: true, Allowed: limit.HasRoom(0, units)}
		return id
	}
	window := int64(l.limit.Window)
	l.Drop(at - window)
	used := l.Units()
	allowed := limit.HasRoom(used+more, units) || mode == store.ModeRecord
	if allowed && mode != store.ModePeek || mode == store.ModeChargeDenied && !limit.NeverFits(units) {
		id = l.Add(at, id, units)
		if !allowed || mode == store.ModeRecord || limit.Unlimited {
			l.Trim(limit.Keeps(mode))
		}
	}
	*a = store.Answer{Known: true, Allowed: allowed, Used: used}
	if l.Units() > 0 {
		a.Reset = time.Duration(l.Oldest() + window - at)
	}
	switch over := l.Units() + more + units - limit.Quota; {
	case allowed || limit.NeverFits(units):
	case more+units > limit.Quota: // until a key has a log of its own
		a.Retry = time.Duration(window)
	default:
		a.Retry = time.Duration(l.UnitAt(over) + window - at)
	}
	return id
}
