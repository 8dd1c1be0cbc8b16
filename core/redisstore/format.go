package redisstore

import (
	"slices"
	"strconv"
	"strings"

	"github.com/sashlimit/sash/core/internal/redisclient"
	"github.com/sashlimit/sash/core/store"
)

// This file writes takes as arguments of the scripts. docs/internals.md describes these in the section "Redis formats".

func newFormat(takes []store.Take) redisclient.Format {
	if len(takes) == 1 {
		return newFormatOfOne(takes[0])
	}
	f := redisclient.NewFormat(jointScript, takes)
	some := func(is func(*store.Plan) bool) bool {
		return slices.ContainsFunc(takes, func(t store.Take) bool { return is(t.Plan) })
	}
	isShort := !some(func(p *store.Plan) bool { return p.Varies || !f.HasShortForm(p) })
	switch f.Weighted = jointWeightedScript; {
	case some(func(p *store.Plan) bool { return isCounter(p) || p.Varies }):
		f.Script, f.Weighted = jointWeightedScript, redisclient.Script{}
		f.Counts = some(isCounter)
	case some(func(p *store.Plan) bool { return len(p.Limits) > 1 }):
		f.Script = jointSeveralScript
	}
	for i := range takes {
		t := &takes[i]
		switch limits := len(t.Plan.Limits); {
		case isCounter(t.Plan):
			appendCounter(&f, t)
			continue
		case t.Plan.Slots:
			f.Tail = append(f.Tail, "0"+strconv.Itoa(limits))
		default:
			f.Tail = append(f.Tail, limits)
		}
		f.AppendPlan(t, isShort)
	}
	f.Tail = append(f.Tail, f.Logs)
	return f
}

// newFormatOfOne is newFormat for a request that draws from one log.
func newFormatOfOne(t store.Take) redisclient.Format {
	t.Cost, t.Mode = t.Plan.Counted(t.Cost, t.Mode)
	f := redisclient.NewFormat(takeScript, []store.Take{t})
	if isCounter(t.Plan) {
		f.Script, f.Counts = counterScript, true
		if appendCounter(&f, &t); f.Grouped && hasShortCounter(t.Plan) { // which a capital letter asks for
			f.Short, f.Tail[0] = 1, strings.ToUpper(f.Tail[0].(string)) //nolint:forcetypeassert // it is a letter
		}
		return f
	}
	switch f.Weighted, f.Booked = takeWeightedScript, bookScript; {
	case t.Plan.Varies:
		f.Script = takeVariedScript
	case len(t.Plan.Limits) > 1:
		f.Script = takeSeveralScript
	}
	f.AppendPlan(&t, f.HasShortForm(t.Plan))
	return f
}

// isCounter reports whether a plan is of another algorithm than the sliding log.
func isCounter(p *store.Plan) bool { return p.Algorithm() != store.SlidingLog }

// hasShortCounter reports whether there is a short path for a plan of another algorithm than the sliding log.
func hasShortCounter(p *store.Plan) bool {
	l := &p.Limits[0]
	fits := int64(l.Quota)+1 < (1<<53)/(redisclient.Span(l)+1)
	return fits && (l.Algorithm == store.FixedWindow && l.Calendar == nil ||
		l.Algorithm == store.TokenBucket && l.Interval()%1000 == 0)
}

// appendCounter appends the arguments for a limit of another algorithm than the sliding log.
func appendCounter(f *redisclient.Format, t *store.Take) {
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
}
