package redisstore

import (
	"math"
	"strings"
	"time"

	"github.com/sashlimit/sash/core/store"
)

// This file writes limits of other algorithms than the sliding log as arguments of scripts.

// counts reports whether a plan is of another algorithm than the sliding log.
func counts(p *store.Plan) bool { return p.Algorithm() != store.SlidingLog }

// hasShortCounter reports whether there is a short path for a plan of another algorithm than the sliding log.
func hasShortCounter(p *store.Plan) bool {
	l := &p.Limits[0]
	fits := int64(l.Quota)+1 < (1<<53)/(span(l)+1)
	return fits && (l.Algorithm == store.FixedWindow && l.Calendar == nil ||
		l.Algorithm == store.TokenBucket && l.Interval()%1000 == 0)
}

// span is what reset can be in a short reply, in microseconds.
func span(l *store.Limit) int64 {
	if l.Algorithm == store.TokenBucket {
		return l.Interval() / 1000
	}
	return l.Window.Microseconds()
}

// appendCounter appends the arguments for a limit of another algorithm than the sliding log. A capital letter asks for
// short replies.
func (f *format) appendCounter(t *store.Take, isShort bool) {
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
	if isShort {
		f.tail[0] = strings.ToUpper(f.tail[0].(string)) //nolint:forcetypeassert // it is one of these
	}
}

// longest returns how long a wait by a limit can be. If the server's clock is set back, a period more counts.
func longest(p *store.Plan, i int) time.Duration {
	l := &p.Limits[i]
	switch l.Algorithm {
	case store.SlidingLog:
		return l.Window
	case store.TokenBucket:
		return 10*time.Duration(int64(l.Quota)*l.Interval()) + time.Microsecond // see mostRefills
	case store.FixedWindow, store.SlidingCounter:
	}
	return time.Duration(min(int64(l.Window), math.MaxInt64/3) * 3)
}
