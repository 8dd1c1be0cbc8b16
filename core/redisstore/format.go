package redisstore

import (
	"slices"
	"strconv"

	"github.com/sashlimit/sash/core/internal/redisclient"
	"github.com/sashlimit/sash/core/store"
)

// This file writes takes as arguments of the scripts. docs/internals.md describes these in the section "Redis formats".

func newFormat(t *store.Take, others []store.Take) redisclient.Format {
	f := redisclient.NewFormat(takeScript, t, others)
	isShort := f.Grouped && redisclient.HasShortForm(t.Plan)
	for i := range others {
		isShort = isShort && redisclient.HasShortForm(others[i].Plan)
	}
	if isShort {
		f.Short = len(t.Plan.Limits)
	}
	switch {
	case len(others) == 0 && counts(t.Plan):
		f.Script = counterScript
		isShort = f.Grouped && hasShortCounter(t.Plan)
		if appendCounter(&f, t, isShort); isShort {
			f.Short = 1
		}
		return f
	case len(others) == 0:
		switch f.Weighted = takeWeightedScript; {
		case t.Plan.Varies:
			f.Script, f.Weighted = takeWeightedScript, redisclient.Script{}
		case len(t.Plan.Limits) > 1:
			f.Script = takeSeveralScript
		}
		f.AppendPlan(t, isShort)
		return f
	}
	f.Script, f.Weighted = jointScript, jointWeightedScript
	some := func(is func(*store.Plan) bool) bool {
		return is(t.Plan) || slices.ContainsFunc(others, func(o store.Take) bool { return is(o.Plan) })
	}
	switch {
	case some(func(p *store.Plan) bool { return counts(p) || p.Varies }):
		f.Script, f.Weighted = jointWeightedScript, redisclient.Script{}
	case some(func(p *store.Plan) bool { return len(p.Limits) > 1 }):
		f.Script = jointSeveralScript
	}
	f.Whole++ // how many takes are admitted
	appendLog(&f, t, isShort)
	for i := range others {
		if isShort {
			f.Short += len(others[i].Plan.Limits)
		}
		appendLog(&f, &others[i], isShort)
	}
	f.Tail = append(f.Tail, f.Logs)
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
