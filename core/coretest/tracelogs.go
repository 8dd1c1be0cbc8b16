package coretest

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/internal/testlen"
	"github.com/sashlimit/sash/core/store"
)

// batchesAgainstOracle compares takes of single logs that are decided in batches.
func batchesAgainstOracle(t *testing.T, c StoreConfig) {
	if c.Batch == nil {
		t.Skip("requests are decided one after the other")
	}
	runTraces(t, c, traceConfig{
		checks: c.Checks, steps: testlen.Of(30, 150), calm: 20, batches: true,
		addLogs: func(tr *trace, n int) {
			tr.id = tr.r.Uint64()
			tr.units = c.OneLimit || n/4%2 == 0
			tr.addWindows(6, windowLimits[n%len(windowLimits)], []logKind{plain, plain, varied, shadowed}[n%4])
		},
	})
}

// jointAgainstOracle compares requests over several logs.
func jointAgainstOracle(t *testing.T, c StoreConfig) {
	runTraces(t, c, traceConfig{
		checks: c.Checks, steps: testlen.Of(60, 300), calm: 16, several: true, batches: true,
		addLogs: func(tr *trace, n int) {
			keys := 1
			if c.Batch != nil {
				keys += tr.r.IntN(3)
			}
			if tr.units = n%3 > 0; n%4 == 0 {
				tr.most = store.ModeChargeDenied
			}
			for i, limits := range tr.r.Perm(len(windowLimits))[:2+tr.r.IntN(3)] {
				kind := plain
				switch {
				case n%5 == 0:
					kind = shadowed
				case n%4 == 1 && tr.r.IntN(2) == 0:
					kind = varied
				case n%7 == 0 && i == 0:
					kind = shadowsOnly
				}
				tr.addWindows(keys, windowLimits[limits], kind)
			}
		},
	})
}

// slotsAgainstOracle compares takes of slots, alone and together with a window.
func slotsAgainstOracle(t *testing.T, c StoreConfig) {
	runTraces(t, c, traceConfig{
		checks: c.Checks / 4, steps: testlen.Of(60, 300), calm: 32,
		addLogs: func(tr *trace, n int) {
			tr.settler()
			tr.renewer()
			tr.joint = several(tr.store)
			p := store.Plan{Slots: true, Limits: []store.Limit{{Quota: 1 + tr.r.IntN(5), Window: time.Second}}}
			if n%3 == 0 {
				p.Limits = append(p.Limits, store.Limit{Quota: 1 + tr.r.IntN(4), Window: 2 * time.Second})
			}
			switch {
			case n%5 == 0:
				p.Shadow = 1
			case n%4 == 0:
				p.Keep = 5 * time.Second
			}
			tr.add(1, p)
			if tr.joint {
				window := []store.Limit{{Quota: 20, Window: 3 * time.Second}, {Quota: 15, Window: 2 * time.Second}}
				tr.add(1, store.Plan{Limits: window, Shadow: n % 2})
			}
		},
	})
}

// algorithmsAgainstOracle compares takes of single keys.
func algorithmsAgainstOracle(t *testing.T, c StoreConfig) {
	runTraces(t, c, traceConfig{
		checks: c.Checks / 12, steps: 60, calm: 12, counters: true,
		addLogs: func(tr *trace, n int) { tr.addCounter(tr.algorithms[n%len(tr.algorithms)]) },
	})
}

// jointAlgorithmsAgainstOracle compares requests over other algorithms, logs and slots together.
func jointAlgorithmsAgainstOracle(t *testing.T, c StoreConfig) {
	runTraces(t, c, traceConfig{
		checks: c.Checks / 12, steps: 60, calm: 12, counters: true, several: true,
		addLogs: func(tr *trace, n int) {
			tr.addCounter(tr.algorithms[n%len(tr.algorithms)])
			tr.addCounter(anyOf(tr.r, tr.algorithms))
			limits := []store.Limit{{Quota: 1 + tr.r.IntN(8), Window: tr.window()}, {Quota: 12, Window: time.Minute}}
			tr.add(1, store.Plan{Limits: limits, Shadow: tr.r.IntN(2), Keep: time.Hour})
			if _, ok := tr.store.(store.Renewer); ok {
				slots := []store.Limit{{Quota: 1 + tr.r.IntN(5), Window: 5 * time.Second}}
				tr.add(1, store.Plan{Limits: slots, Slots: true})
			}
		},
	})
}

// windowLimits are those of traces: the first ones have one limit.
var windowLimits = [][]store.Limit{
	{{Quota: 7, Window: time.Second}},
	{{Quota: 100, Window: time.Minute}},
	{{Quota: 1, Window: 10 * time.Millisecond}},
	{{Quota: 5, Window: 10 * time.Second}},
	{{Quota: 150, Window: time.Second}},
	{{Quota: 3, Window: 2 * time.Second}},
	{{Quota: 3, Window: time.Second}, {Quota: 10, Window: time.Minute}},
	{{Quota: 2, Window: 50 * time.Millisecond}, {Quota: 3, Window: 70 * time.Millisecond}},
	{{Quota: 30, Window: time.Second}, {Quota: 20, Window: 3 * time.Second}},
	{{Quota: 5, Window: time.Second}, {Quota: 20, Window: 9 * time.Second}},
	{{Quota: 12, Window: 3 * time.Second}, {Quota: 3, Window: 20 * time.Millisecond}, {Quota: 6, Window: time.Second}},
}

// logKind is what a log has besides limits that decide.
type logKind int

const (
	plain       logKind = iota
	shadowed            // a limit more, which does not decide
	shadowsOnly         // no limit decides
	varied              // other limits from time to time
)

// add adds so many logs for one position of a request, unless the request would have too many limits.
func (tr *trace) add(keys int, plans ...store.Plan) {
	limits, l := 0, new(traceLog)
	for _, other := range tr.logs {
		limits += len(other.plans[0].Limits)
	}
	if limits+len(plans[0].Limits) > store.MaxLimits {
		return
	}
	for i := range keys {
		l.keys = append(l.keys, store.NewKey(tr.name, fmt.Sprintf("k%d.%d", len(tr.logs), i)))
	}
	for _, p := range plans {
		l.plans = append(l.plans, store.NewPlan(p))
	}
	tr.logs = append(tr.logs, l)
}

func (tr *trace) addWindows(keys int, limits []store.Limit, kind logKind) {
	p := store.Plan{Limits: limits, Bound: anyOf(tr.r, []int{0, 40, 300})}
	if !tr.OneLimit && tr.r.IntN(8) == 0 {
		p.Keep = time.Hour
	}
	switch {
	case tr.OneLimit:
		p.Limits = p.Limits[:1]
	case kind == shadowed:
		p.Limits, p.Shadow = append(slices.Clip(limits), store.Limit{Quota: 5, Window: 1500 * time.Millisecond}), 1
	case kind == shadowsOnly:
		p.Shadow = len(limits)
	}
	plans := []store.Plan{p}
	for i := 0; i < 4 && kind == varied && !tr.OneLimit; i++ {
		for _, l := range limits {
			p.Keep = max(p.Keep, l.Window)
		}
		plans[0].Keep = p.Keep
		p.Varies, p.Limits = true, slices.Clone(limits)
		for j := range p.Limits {
			p.Limits[j].Quota = 1 + tr.r.IntN(2*limits[j].Quota)
			p.Limits[j].Window = max(tr.part(min(p.Keep, 9*time.Second)).Truncate(time.Millisecond), core.MinWindow)
		}
		plans = append(plans, p)
	}
	tr.add(keys, plans...)
}

// addCounter adds a limit of another algorithm, sometimes with a quota that changes.
func (tr *trace) addCounter(a store.Algorithm) {
	l := tr.limit(a)
	more := l
	// A bucket whose size changes is not defined here by what was admitted.
	if a != store.TokenBucket && tr.r.IntN(4) == 0 {
		more.Quota = 1 + tr.r.IntN(2*l.Quota)
	}
	tr.add(1, store.Plan{Limits: []store.Limit{l}}, store.Plan{Limits: []store.Limit{more}})
}

func (tr *trace) window() time.Duration {
	windows := []time.Duration{
		core.MinWindow, 7 * time.Millisecond, time.Second, 10 * time.Second, time.Minute, time.Hour,
	}
	const longest = int64(core.MaxWindow / time.Microsecond)
	switch n := tr.r.IntN(2 * len(windows)); {
	case n < len(windows):
		return windows[n]
	case n == len(windows) && tr.now > 2*longest: // a long one of which a period ends soon
		soon := tr.now + tr.r.Int64N(2e6)
		return time.Duration(soon/(soon/longest+1+tr.r.Int64N(99))) * time.Microsecond
	}
	return time.Duration(1000+tr.r.IntN(20_000_000)) * time.Microsecond
}

func (tr *trace) limit(a store.Algorithm) store.Limit {
	l := store.Limit{Quota: 1 + tr.r.IntN(9), Window: tr.window(), Algorithm: a}
	switch tr.r.IntN(5) {
	case 0:
		l.Quota = 1 + tr.r.IntN(200)
	case 1:
		l.Quota = core.MaxQuota - tr.r.IntN(9)
	}
	switch {
	case a == store.TokenBucket:
		l.Refill = 1 + tr.r.IntN(12)
		if tr.r.IntN(3) == 0 {
			l.Refill = 1 + tr.r.IntN(core.MaxQuota)
		}
		l.Quota = int(min(int64(l.Quota), max(1, int64(core.MaxWindow)/l.Interval())))
	case a == store.FixedWindow && tr.r.IntN(2) == 0:
		l.Window = max(l.Window, time.Minute)
		l.Calendar = tr.calendar(l.Window)
	}
	return l
}

// calendar returns one of which the present instant is in the first or the second period.
func (tr *trace) calendar(longest time.Duration) *store.Calendar {
	const minute = int64(time.Minute / time.Microsecond)
	length := func() int64 { return minute * (1 + tr.r.Int64N(longest.Microseconds()/minute)) }
	first := length()
	begin := tr.now - tr.r.Int64N(2*first)
	begin -= begin % minute
	c := store.Calendar{begin}
	for i := range c[1:] {
		c[i+1] = c[i] + length()
	}
	if tr.now >= c[2] { // a short second period has passed
		c[2] = tr.now - tr.now%minute + minute
		c[3] = c[2] + length()
	}
	return &c
}

// planOf returns a plan of a log. Its calendar is that of another limiter at the same instant, which may be a period
// behind.
func (tr *trace) planOf(l *traceLog) *store.Plan {
	p := anyOf(tr.r, l.plans)
	c := p.Limits[0].Calendar
	if c == nil || tr.now < c[2] {
		return p
	}
	later := *c
	for tr.now >= later[2] {
		length := 1 + tr.r.Int64N(p.Limits[0].Window.Microseconds()/60e6)
		later = store.Calendar{later[1], later[2], later[3], later[3] + length*60e6}
	}
	for i, p := range l.plans {
		limit := p.Limits[0]
		limit.Calendar = &later
		l.plans[i] = planFor(limit)
	}
	return anyOf(tr.r, l.plans)
}
