package redisstore

import (
	"strings"

	"github.com/sashlimit/sash/core/internal/redisclient"
	"github.com/sashlimit/sash/core/store"
)

// This file writes limits of other algorithms than the sliding log as arguments of scripts.

// counts reports whether a plan is of another algorithm than the sliding log.
func counts(p *store.Plan) bool { return p.Algorithm() != store.SlidingLog }

// hasShortCounter reports whether there is a short path for a plan of another algorithm than the sliding log.
func hasShortCounter(p *store.Plan) bool {
	l := &p.Limits[0]
	fits := int64(l.Quota)+1 < (1<<53)/(redisclient.Span(l)+1)
	return fits && (l.Algorithm == store.FixedWindow && l.Calendar == nil ||
		l.Algorithm == store.TokenBucket && l.Interval()%1000 == 0)
}

// appendCounter appends the arguments for a limit of another algorithm than the sliding log. A capital letter asks for
// short replies.
func appendCounter(f *redisclient.Format, t *store.Take, isShort bool) {
	l := &t.Plan.Limits[0]
	window := l.Window.Microseconds()
	mode := redisclient.ModeText(t)
	mode = mode[len(mode)-1:]
	switch {
	case l.Algorithm == store.TokenBucket:
		f.Tail = append(f.Tail, "t", mode, l.Quota, l.Interval()/1000, l.Interval()%1000)
	case l.Algorithm == store.SlidingCounter:
		f.Tail = append(f.Tail, "s", mode, l.Quota, window)
	case l.Calendar != nil:
		c := l.Calendar
		f.Tail = append(f.Tail, "c", mode, l.Quota, c[0], c[1], c[2], c[3], window)
	default:
		f.Tail = append(f.Tail, "w", mode, l.Quota, window)
	}
	if isShort {
		f.Tail[0] = strings.ToUpper(f.Tail[0].(string)) //nolint:forcetypeassert // it is one of these
	}
}
