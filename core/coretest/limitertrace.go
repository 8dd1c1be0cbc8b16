package coretest

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/internal/testlen"
	"github.com/sashlimit/sash/core/store"
)

// limiterTrace is a trace of requests to limiters that have one log in common.
type limiterTrace struct {
	*trace

	lead int // which kind of limiter is called most

	plain, denying, shadowed, banning, varying *core.Limiter
	limits, shadow, chosen                     core.Limits // shadow is nil in a trace without one
	keep                                       time.Duration
	bans                                       banOracle

	decisions []made
	reported  *core.Decision // of the shadow
}

// made is a decision that can be undone, and the definition's id of its entry.
type made struct {
	d  core.Decision
	id uint64
}

// banOracle holds the times of denials and bans.
type banOracle struct {
	denials, bans []time.Duration
	steps         []int
}

const (
	banDenials = 4
	banWithin  = 2 * time.Second
	banFirst   = 300 * time.Millisecond
)

var tracePolicies = []core.Limits{
	{{Name: "a", Quota: 1, Window: 10 * time.Millisecond}},
	{{Name: "a", Quota: 5, Window: 10 * time.Second}},
	{{Name: "a", Quota: 100, Window: time.Minute}},
	{{Name: "a", Quota: 300, Window: 7 * time.Second}},
	{{Name: "a", Quota: 3, Window: time.Second}, {Name: "b", Quota: 10, Window: time.Minute}},
	{{Name: "a", Quota: 40, Window: time.Hour}, {Name: "b", Quota: 7, Window: 1300 * time.Millisecond},
		{Name: "c", Quota: 20, Window: time.Minute}},
	{{Name: "a", Quota: 200, Window: time.Second}, {Name: "b", Quota: 150, Window: 3 * time.Second}},
	{{Name: "a", Quota: 2, Window: 10 * time.Millisecond}, {Name: "b", Quota: 3, Window: 15 * time.Millisecond},
		{Name: "c", Quota: 3, Window: 20 * time.Millisecond}, {Name: "d", Quota: 9, Window: 90 * time.Millisecond}},
}

// againstOracle compares random traces: bursts within one microsecond, waits of exactly a Retry-After or one
// microsecond less, several limits, costs, and all other operations on a log.
//
// Two traces of three have no shadow, because stores may answer limits that stand alone by shorter paths. The
// limiters ask the store itself, not a wrapper, because a limiter knows some stores by their type.
func againstOracle(t *testing.T, c StoreConfig) {
	config := traceConfig{checks: c.Checks, steps: testlen.Of(75, 750), calm: 18}
	eachTrace(t, c, config, func(tr *trace, n int) {
		l := &limiterTrace{
			trace:  tr,
			limits: tracePolicies[n%len(tracePolicies)],
			lead:   (n + n/8) % 8, // with 8 policies each of them sees each lead, and so does each kind of trace
		}
		tr.units = n%5 < 2 // 5 has no factor in common with the numbers of policies and kinds
		if c.OneLimit {
			l.limits, tr.units = l.limits[:1], true
			if l.lead == 1 || l.lead == 2 { // which need bans, or limits that vary
				l.lead += 2
			}
		} else if n%3 == 0 {
			l.shadow = anyOf(tr.r, tracePolicies)
		}
		l.run()
	})
}

func (tr *limiterTrace) run() {
	for _, l := range slices.Concat(tr.limits, tr.shadow) {
		tr.keep = max(tr.keep, l.Window)
	}
	tr.add(1, *tr.plan(tr.limits))
	tr.key, tr.chosen = tr.logs[0].keys[0], tr.limits
	tr.makeLimiters()
	mostlyTakes := tr.units || tr.r.IntN(2) == 0
	for range tr.steps {
		tr.pause()
		k := tr.r.IntN(40)
		if mostlyTakes && k >= 30 && k < 38 && tr.r.IntN(4) > 0 {
			k = 0 // a log with more than its quota, or with costs, is kept off the short paths for a whole window
		}
		tr.step(k)
	}
}

func (tr *limiterTrace) makeLimiters() {
	named := []core.Option{core.WithName(tr.name)}
	if tr.shadow != nil { // the other limiters must then keep entries for the shadow's windows too
		named = append(named, core.WithShadow(tr.shadow))
	}
	with := func(p core.Policy, opts ...core.Option) *core.Limiter {
		return limiter(tr.t, tr.store, p, slices.Concat(named, opts)...)
	}
	report := func(_ context.Context, e core.Event) { tr.reported = e.Shadow }
	tr.plain, tr.denying = with(tr.limits), with(tr.limits, core.WithCountDenied())
	tr.shadowed = with(tr.limits, core.WithObserver(report))
	if tr.OneLimit {
		return
	}
	tr.banning = with(tr.limits, core.WithBan(banDenials, banWithin, banFirst))
	tr.varying = with(core.LimitBy(func(context.Context) core.Limits { return tr.chosen }))
	_, err := tr.varying.Peek(tr.t.Context(), tr.key.Text) // the limiter learns how long entries stay
	tr.noError(err)
}

func (tr *limiterTrace) step(k int) {
	switch {
	case k < 24:
		switch tr.lead { // one kind of limiter per trace: denials that count would otherwise fill every log
		case 0:
			tr.take(tr.denying, store.ModeChargeDenied, tr.limits)
		case 1:
			tr.takeOrBan()
		case 2:
			tr.vary()
		default:
			tr.take(tr.plain, tr.mode(), tr.limits)
		}
	case k < 27:
		tr.take(tr.plain, store.ModePeek, tr.limits)
	case k < 30:
		tr.takeWithShadow()
	case k < 31:
		tr.take(tr.plain, store.ModeRecord, tr.limits)
	case k < 38:
		tr.settle()
	case k < 39:
		tr.log()
	case tr.r.IntN(40) == 0:
		tr.noError(tr.plain.Reset(tr.t.Context(), tr.key.Text))
		tr.noError(tr.oracle.Reset(tr.t.Context(), tr.key))
	case tr.lead > 2 && tr.r.IntN(2) == 0:
		tr.take(tr.plain, store.ModeCharge, tr.limits)
		tr.merge(tr.key, tr.logs[0].plans[0])
		tr.take(tr.plain, store.ModePeek, tr.limits)
	}
}

// plan is what a store is asked of limits on the log.
func (tr *limiterTrace) plan(limits core.Limits) *store.Plan {
	p := store.Plan{Keep: tr.keep}
	for _, l := range limits {
		p.Limits = append(p.Limits, store.Limit{Quota: l.Quota, Window: l.Window})
	}
	return store.NewPlan(p)
}

// mode is that of most takes, and for some ModeUpTo.
func (tr *limiterTrace) mode() store.Mode {
	often := 12
	if tr.lead == 3 {
		often = 2
	}
	if !tr.units && tr.r.IntN(often) == 0 {
		return store.ModeUpTo
	}
	return store.ModeCharge
}

// define returns what the definition decides.
func (tr *limiterTrace) define(limits core.Limits, cost int, mode store.Mode) core.Decision {
	tr.id++
	take := store.Take{Key: tr.key, Plan: tr.plan(limits), Cost: cost, ID: tr.id, Mode: mode}
	a, err := Take(tr.t.Context(), tr.oracle, take)
	tr.noError(err)
	return expect(limits, cost, mode, a)
}

// take compares a decision of one limiter with the definition's, and returns what it has cost.
func (tr *limiterTrace) take(l *core.Limiter, mode store.Mode, limits core.Limits) (cost int) {
	var got core.Decision
	var err error
	switch cost = tr.cost(tr.logs[0].plans[0].Limits[0], mode); mode {
	case store.ModePeek:
		cost = 1
		got, err = l.Peek(tr.t.Context(), tr.key.Text)
	case store.ModeRecord:
		got, err = l.Record(tr.t.Context(), tr.key.Text, cost)
	case store.ModeUpTo:
		got, err = l.AllowAtMost(tr.t.Context(), tr.key.Text, cost)
	case store.ModeCharge, store.ModeChargeDenied:
		got, err = l.AllowN(tr.t.Context(), tr.key.Text, cost)
	}
	if err != nil && !errors.Is(err, core.ErrCostExceedsQuota) {
		tr.fatalf("%v", err)
	}
	want := tr.define(limits, cost, mode)
	if tr.Repeats && mode == store.ModeChargeDenied && !want.Allowed {
		want.Used, want.Violated = got.Used, got.Violated
		want.Remaining, want.ResetAfter = got.Remaining, got.ResetAfter
	}
	tr.compare(fmt.Sprintf("limits %v, cost %d, mode %v", limits, cost, mode), got, want)
	return cost
}

func (tr *limiterTrace) compare(desc string, d, want core.Decision) {
	if got := visible(d); !reflect.DeepEqual(got, want) {
		tr.fatalf("%s:\ngot  %+v\nwant %+v", desc, got, want)
	}
	if !d.Banned {
		tr.decisions = append(tr.decisions, made{d, tr.id})
	}
	tr.decisions = tr.decisions[max(0, len(tr.decisions)-30):]
	tr.hint = want.RetryAfter
	tr.done++
}

// takeWithShadow compares the shadow's decision with the definition's for the log as it was before the take.
func (tr *limiterTrace) takeWithShadow() {
	before := *tr.oracle.log(tr.key, tr.keep)
	before.entries = slices.Clone(before.entries)
	mode := tr.mode()
	cost := tr.take(tr.shadowed, mode, tr.limits)
	if tr.shadow == nil {
		return
	}
	take := store.Take{Plan: tr.plan(tr.shadow), Cost: cost, Mode: mode}
	want := expect(tr.shadow, cost, mode, decide([]store.Take{take}, []*definition{&before})[0])
	got := tr.reported
	if got == nil || got.Allowed != want.Allowed || got.RetryAfter != want.RetryAfter ||
		got.Remaining != want.Remaining || got.Used != want.Used || got.Granted != want.Granted ||
		!slices.Equal(got.Violated, want.Violated) {
		tr.fatalf("cost %d, mode %v: shadow\ngot  %+v\nwant %+v", cost, mode, got, want)
	}
	tr.done++
}

// vary takes under limits that change now and then.
func (tr *limiterTrace) vary() {
	if tr.r.IntN(5) == 0 {
		tr.chosen = slices.Clone(tr.limits)
		i := tr.r.IntN(len(tr.chosen))
		tr.chosen[i].Quota = 1 + tr.r.IntN(2*tr.chosen[i].Quota)
		if tr.r.IntN(2) == 0 {
			tr.chosen[i].Window = time.Duration(1+tr.r.Int64N(int64(tr.keep)/1000)) * time.Microsecond * 1000
			tr.chosen[i].Window = min(max(tr.chosen[i].Window, core.MinWindow), tr.keep)
		}
	}
	tr.take(tr.varying, store.ModeCharge, tr.chosen)
}

// takeOrBan takes from the limiter that bans, and compares with the oracle's denials and bans.
func (tr *limiterTrace) takeOrBan() {
	now, b := tr.oracle.now, &tr.bans
	past := 0
	for i, at := range b.bans {
		if now-banFirst<<7 < at {
			past += 1 << b.steps[i]
		}
		if end := at + banFirst<<b.steps[i]; now < end {
			got, err := tr.banning.Allow(tr.t.Context(), tr.key.Text)
			tr.noError(err)
			tr.compare("banned", got, banned(end-now, 0))
			return
		}
	}
	cost := tr.cost(tr.logs[0].plans[0].Limits[0], store.ModeCharge)
	got, err := tr.banning.AllowN(tr.t.Context(), tr.key.Text, cost)
	if err != nil && !errors.Is(err, core.ErrCostExceedsQuota) {
		tr.fatalf("%v", err)
	}
	want := tr.define(tr.limits, cost, store.ModeCharge)
	if !want.Allowed {
		expired := func(at time.Duration) bool { return at <= now-banWithin }
		b.denials = append(slices.DeleteFunc(b.denials, expired), now)
		if len(b.denials) == banDenials {
			step := 0
			for step < 6 && 2<<step <= past+1 {
				step++
			}
			b.denials, b.bans, b.steps = nil, append(b.bans, now), append(b.steps, step)
			want = banned(banFirst<<step, want.Used)
		}
	}
	tr.compare(fmt.Sprintf("with bans, cost %d", cost), got, want)
}

// settle undoes a decision, or changes what it has cost.
func (tr *limiterTrace) settle() {
	if _, ok := tr.store.(store.Settler); !ok || len(tr.decisions) == 0 {
		return
	}
	m, cost := anyOf(tr.r, tr.decisions), tr.corrected()
	if cost == 0 {
		tr.noError(m.d.Undo(tr.t.Context()))
	} else {
		tr.noError(m.d.Settle(tr.t.Context(), cost))
	}
	if m.d.Allowed {
		tr.noError(tr.oracle.Settle(tr.t.Context(), store.Settlement{Key: tr.key, ID: m.id, Cost: cost}))
	}
	tr.take(tr.plain, store.ModePeek, tr.limits)
}

func (tr *limiterTrace) log() {
	if _, ok := tr.store.(store.Lister); !ok {
		return
	}
	longest := tr.limits[0].Window
	for _, l := range tr.limits {
		longest = max(longest, l.Window)
	}
	entries, err := tr.plain.Log(tr.t.Context(), tr.key.Text)
	tr.noError(err)
	tr.compareLogs(entries, tr.key, longest)
}
