package redisstore

import (
	"slices"
	"strconv"

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
	isShort := f.Grouped && !some(func(p *store.Plan) bool { return !redisclient.HasShortForm(p) })
	switch f.Weighted = jointWeightedScript; {
	case some(func(p *store.Plan) bool { return counts(p) || p.Varies }):
		f.Script, f.Weighted = jointWeightedScript, redisclient.Script{}
	case some(func(p *store.Plan) bool { return len(p.Limits) > 1 }):
		f.Script = jointSeveralScript
	}
	for i := range takes {
		if isShort {
			f.Short += len(takes[i].Plan.Limits)
		}
		appendLog(&f, &takes[i], isShort)
	}
	f.Tail = append(f.Tail, f.Logs)
	return f
}

// newFormatOfOne is newFormat for a request that draws from one log.
func newFormatOfOne(t store.Take) redisclient.Format {
	t.Cost, t.Mode = t.Plan.Counted(t.Cost, t.Mode)
	f := redisclient.NewFormat(takeScript, []store.Take{t})
	if counts(t.Plan) {
		f.Script = counterScript
		isShort := f.Grouped && hasShortCounter(t.Plan)
		if appendCounter(&f, &t, isShort); isShort {
			f.Short = 1
		}
		return f
	}
	switch f.Weighted = takeWeightedScript; {
	case t.Plan.Varies:
		f.Script, f.Weighted = takeWeightedScript, redisclient.Script{}
	case len(t.Plan.Limits) > 1:
		f.Script = takeSeveralScript
	}
	isShort := f.Grouped && redisclient.HasShortForm(t.Plan)
	if isShort {
		f.Short = len(t.Plan.Limits)
	}
	f.AppendPlan(&t, isShort)
	return f
}

// appendLog appends the arguments for one of several logs.
func appendLog(f *redisclient.Format, t *store.Take, isShort bool) {
	if counts(t.Plan) {
		appendCounter(f, t, false)
		return
	}
	if t.Plan.Slots {
		f.Tail = append(f.Tail, "0"+strconv.Itoa(len(t.Plan.Limits)))
	} else {
		f.Tail = append(f.Tail, len(t.Plan.Limits))
	}
	f.AppendPlan(t, isShort)
	if t.Mode == store.ModeChargeDenied {
		f.Rooms = append(f.Rooms, t.Plan.Bound)
	}
}
