package redisstore

import (
	"math"
	"time"

	"github.com/sashlimit/sash/core/store"
)

// This file writes limits of other algorithms than the sliding log as arguments of scripts.

// counts reports whether a plan is of another algorithm than the sliding log.
func counts(p *store.Plan) bool { return p.Algorithm() != store.SlidingLog }

// appendCounter appends the arguments for a limit of another algorithm than the sliding log.
func (f *format) appendCounter(t *store.Take) {
	l := &t.Plan.Limits[0]
	window := l.Window.Microseconds()
	mode := modeText(t)
	mode = mode[len(mode)-1:]
	switch {
	case l.Algorithm == store.TokenBucket:
		f.tail = append(f.tail, "t", mode, l.Quota, l.Interval()/1000, l.Interval()%1000)
	case l.Algorithm == store.SlidingCounter:
		f.tail = append(f.tail, "s", mode, l.Quota, window)
	case l.Calendar != nil:
		c := l.Calendar
		f.tail = append(f.tail, "c", mode, l.Quota, c[0], c[1], c[2], c[3], window)
	default:
		f.tail = append(f.tail, "w", mode, l.Quota, window)
	}
}

// longest returns how long a wait by a limit can be. If the server's clock is set back, a period more counts.
func longest(p *store.Plan, i int) time.Duration {
	l := &p.Limits[i]
	switch l.Algorithm {
	case store.SlidingLog:
		return l.Window
	case store.TokenBucket:
		return time.Duration(int64(l.Quota)*l.Interval()) + time.Microsecond
	case store.FixedWindow, store.SlidingCounter:
	}
	return time.Duration(min(int64(l.Window), math.MaxInt64/3) * 3)
}
