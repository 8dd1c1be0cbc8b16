package coretest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/internal/testlen"
	"github.com/sashlimit/sash/core/store"
)

// trace is a sequence of random calls on one key, each compared with the oracle.
type trace struct {
	t       *testing.T
	r       *rand.Rand
	store   core.Store
	key     store.Key
	advance func(time.Duration)
	oracle  oracle
	desc    string
	lead    int // which kind of limiter is called most
	repeats bool

	oneLimit bool // see StoreConfig.OneLimit

	unitsOnly bool // stores may keep logs whose entries all cost one unit in another way

	plain, counting, shadowed, banning *core.Limiter // on the same log
	varying                            *core.Limiter
	limits, shadow, chosen             core.Limits // shadow is nil in a trace without one
	keep                               time.Duration
	bans                               banOracle

	made   []made
	merged uint64
	last   core.Decision

	lastCost int
	done     int
}

// made is a decision that can be undone, and the oracle's id of its entry.
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

// againstOracle compares random traces: bursts within one microsecond, waits
// of exactly a Retry-After or one microsecond less, several limits, costs, and
// all other operations on a log.
//
// Two traces of three have no shadow, because stores may answer limits that stand alone by shorter paths. The
// limiters ask the store itself, not a wrapper, because a limiter knows some stores by their type.
func againstOracle(t *testing.T, c StoreConfig) {
	logs, advance := c.New(t)
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 0))
	for n, done := 0, 0; done < c.Checks; n++ {
		tr := &trace{
			t: t, r: r, store: logs, advance: advance,
			limits:  tracePolicies[n%len(tracePolicies)],
			lead:    (n + n/8) % 8, // with 8 policies each of them sees each lead, and so does each kind of trace
			repeats: c.Repeats,
			desc:    fmt.Sprintf("seed %#x, trace %d", seed, n),
		}
		tr.unitsOnly = n%5 < 2 // 5 has no factor in common with the numbers of policies and kinds
		if c.OneLimit {
			tr.limits, tr.oneLimit, tr.unitsOnly = tr.limits[:1], true, true
			if tr.lead == 1 || tr.lead == 2 { // which need bans, or limits that vary
				tr.lead += 2
			}
		} else if n%3 == 0 {
			tr.shadow = tracePolicies[r.IntN(len(tracePolicies))]
		}
		tr.run(fmt.Sprintf("oracle-%x-%d", seed, n))
		done += tr.done
	}
}

func (tr *trace) run(name string) {
	for _, l := range slices.Concat(tr.limits, tr.shadow) {
		tr.keep = max(tr.keep, l.Window)
	}
	tr.chosen = tr.limits
	named := []core.Option{core.WithName(name)}
	if tr.shadow != nil { // the other limiters must then keep entries for the shadow's windows too
		named = append(named, core.WithShadow(tr.shadow))
	}
	with := func(p core.Policy, opts ...core.Option) *core.Limiter {
		return limiter(tr.t, tr.store, p, slices.Concat(named, opts)...)
	}
	tr.plain = with(tr.limits)
	tr.counting = with(tr.limits, core.WithCountDenied())
	var shadow *core.Decision
	tr.shadowed = with(tr.limits, core.WithObserver(func(_ context.Context, e core.Event) { shadow = e.Shadow }))
	if !tr.oneLimit {
		tr.banning = with(tr.limits, core.WithBan(banDenials, banWithin, banFirst))
		tr.varying = with(core.LimitBy(func(context.Context) core.Limits { return tr.chosen }))
		if _, err := tr.varying.Peek(tr.t.Context(), "k"); err != nil { // the limiter learns how long entries stay
			tr.t.Fatal(err)
		}
	}
	tr.key = store.NewKey(name, "k")
	mostlyTakes := tr.unitsOnly || tr.r.IntN(2) == 0
	for range testlen.Of(75, 1500) {
		tr.wait()
		k := tr.r.IntN(40)
		if mostlyTakes && k >= 30 && k < 38 && tr.r.IntN(4) > 0 {
			k = 0 // a log with more than its quota, or with costs, is kept off the short paths for a whole window
		}
		switch {
		case k < 24:
			switch tr.lead { // one kind of limiter per trace: denials that count would otherwise fill every log
			case 0:
				tr.take(tr.counting, store.ModeChargeDenied, tr.limits)
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
			mode := tr.mode()
			tr.take(tr.shadowed, mode, tr.limits)
			if tr.shadow != nil {
				tr.compareShadow(shadow, mode)
			}
		case k < 31:
			tr.take(tr.plain, store.ModeRecord, tr.limits)
		case k < 34:
			tr.settle(0)
		case k < 37:
			tr.settle(tr.someUnits(12))
		case k < 38:
			tr.settle(tr.someUnits(400)) // above most quotas
		case k < 39:
			tr.log()
		case tr.r.IntN(40) == 0:
			tr.reset()
		case tr.lead > 2 && tr.r.IntN(2) == 0:
			tr.take(tr.plain, store.ModeCharge, tr.limits)
			tr.merge()
		}
	}
}

// wait advances time by nothing, a little, a part of the window, or the last denial's RetryAfter.
func (tr *trace) wait() {
	longest, largest := time.Duration(0), 1
	for _, l := range tr.limits {
		longest, largest = max(longest, l.Window), max(largest, l.Quota)
	}
	var d time.Duration
	switch tr.r.IntN(12) {
	case 0:
		d = time.Duration(tr.r.Int64N(int64(longest)/int64(largest)*4 + 1)).Truncate(time.Microsecond)
	case 1:
		d = time.Microsecond
	case 2:
		d = max(0, tr.last.RetryAfter-time.Duration(tr.r.IntN(2))*time.Microsecond)
	case 3:
		if tr.r.IntN(60) == 0 {
			d = tr.keep - time.Duration(tr.r.IntN(3)-1)*time.Microsecond
		}
	case 4:
		d = tr.untilOneLeaves()
	}
	if d > 0 {
		tr.advance(d)
		tr.oracle.now += d
	}
	tr.oracle.forget(tr.keep)
}

// untilOneLeaves returns the time until one of the oldest entries leaves a window, give or take one microsecond.
func (tr *trace) untilOneLeaves() time.Duration {
	window := tr.limits[tr.r.IntN(len(tr.limits))].Window
	var inside []oracleEntry
	for _, e := range tr.oracle.entries {
		if tr.oracle.now-window < e.at {
			inside = append(inside, e)
		}
	}
	if len(inside) == 0 {
		return 0
	}
	e := inside[tr.r.IntN(min(len(inside), 4))]
	return max(0, e.at+window-tr.oracle.now+time.Duration(tr.r.IntN(3)-1)*time.Microsecond)
}

func (tr *trace) cost() int {
	if !tr.unitsOnly && tr.r.IntN(3) == 0 {
		return 1 + tr.r.IntN(min(tr.limits[0].Quota+1, 40))
	}
	return 1
}

// mode is that of most takes, and for some of a store that knows it ModeUpTo.
func (tr *trace) mode() store.Mode {
	often := 12
	if tr.lead == 3 {
		often = 2
	}
	if _, ok := tr.store.(store.Granter); ok && !tr.unitsOnly && tr.r.IntN(often) == 0 {
		return store.ModeUpTo
	}
	return store.ModeCharge
}

// someUnits is a cost below most.
func (tr *trace) someUnits(most int) int {
	if tr.unitsOnly {
		most = 2
	}
	return tr.r.IntN(most)
}

// take compares a decision of one limiter with the oracle's.
func (tr *trace) take(l *core.Limiter, mode store.Mode, limits core.Limits) {
	cost := tr.cost()
	var got core.Decision
	var err error
	switch mode {
	case store.ModePeek:
		cost = 1
		got, err = l.Peek(tr.t.Context(), "k")
	case store.ModeRecord:
		got, err = l.Record(tr.t.Context(), "k", cost)
	case store.ModeUpTo:
		cost += tr.r.IntN(2) * tr.r.IntN(400) // above most quotas
		got, err = l.AllowAtMost(tr.t.Context(), "k", cost)
	case store.ModeCharge, store.ModeChargeDenied:
		got, err = l.AllowN(tr.t.Context(), "k", cost)
	}
	if err != nil && !errors.Is(err, core.ErrCostExceedsQuota) {
		tr.t.Fatalf("%s, step %d: %v", tr.desc, tr.done, err)
	}
	id := uint64(tr.done + 1)
	held := len(tr.oracle.entries)
	want := expect(limits, cost, mode, tr.oracle.take(store.Take{Plan: planOf(limits), Cost: cost, ID: id, Mode: mode}))
	if tr.repeats && mode == store.ModeChargeDenied && !want.Allowed {
		want.Used, want.Violated = got.Used, got.Violated
		want.Remaining, want.ResetAfter = got.Remaining, got.ResetAfter
	}
	tr.compare(fmt.Sprintf("limits %v, cost %d, mode %d, %d entries", limits, cost, mode, held), got, want)
	if tr.made = append(tr.made, made{got, id}); len(tr.made) > 30 {
		tr.made = tr.made[tr.r.IntN(2):]
	}
	tr.last, tr.lastCost = got, cost
}

func (tr *trace) compare(desc string, got, want core.Decision) {
	got = visible(got)
	if !reflect.DeepEqual(got, want) {
		tr.t.Fatalf("%s, step %d, %s:\ngot  %+v\nwant %+v", tr.desc, tr.done, desc, got, want)
	}
	tr.done++
}

// compareShadow compares the shadow's decision with the oracle's for the log as it was before the last take.
func (tr *trace) compareShadow(got *core.Decision, mode store.Mode) {
	if got == nil {
		tr.t.Fatalf("%s, step %d: no shadow", tr.desc, tr.done)
	}
	before := slices.DeleteFunc(slices.Clone(tr.oracle.entries), func(e oracleEntry) bool {
		return e.id == tr.made[len(tr.made)-1].id
	})
	o := oracle{now: tr.oracle.now, entries: before}
	a := o.take(store.Take{Plan: planOf(tr.shadow), Cost: tr.lastCost, Mode: mode})
	want := expect(tr.shadow, tr.lastCost, mode, a)
	if got.Allowed != want.Allowed || got.RetryAfter != want.RetryAfter || got.Remaining != want.Remaining ||
		got.Used != want.Used || got.Granted != want.Granted || !slices.Equal(got.Violated, want.Violated) {
		tr.t.Fatalf("%s, step %d, cost %d, mode %v: shadow\ngot  %+v\nwant %+v",
			tr.desc, tr.done, tr.lastCost, mode, visible(*got), want)
	}
	tr.done++
}

// vary takes under limits that change now and then.
func (tr *trace) vary() {
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
func (tr *trace) takeOrBan() {
	now, b := tr.oracle.now, &tr.bans
	past := 0
	for i, at := range b.bans {
		if now-banFirst<<7 < at {
			past += 1 << b.steps[i]
		}
		if end := at + banFirst<<b.steps[i]; now < end {
			got, err := tr.banning.Allow(tr.t.Context(), "k")
			if err != nil {
				tr.t.Fatal(err)
			}
			tr.last = got
			tr.compare("banned", got, banned(end-now, 0))
			return
		}
	}
	cost := tr.cost()
	got, err := tr.banning.AllowN(tr.t.Context(), "k", cost)
	if err != nil && !errors.Is(err, core.ErrCostExceedsQuota) {
		tr.t.Fatal(err)
	}
	take := store.Take{Plan: planOf(tr.limits), Cost: cost, ID: uint64(tr.done + 1)}
	want := expect(tr.limits, cost, store.ModeCharge, tr.oracle.take(take))
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
	if tr.last = got; !got.Banned {
		tr.made = append(tr.made, made{got, uint64(tr.done + 1)})
	}
	tr.compare(fmt.Sprintf("with bans, cost %d", cost), got, want)
}

func (tr *trace) settle(cost int) {
	if _, ok := tr.store.(store.Settler); !ok || len(tr.made) == 0 {
		return
	}
	m := tr.made[tr.r.IntN(len(tr.made))]
	var err error
	if cost == 0 {
		err = m.d.Undo(tr.t.Context())
	} else {
		err = m.d.Settle(tr.t.Context(), cost)
	}
	if err != nil {
		tr.t.Fatalf("%s, step %d: settle: %v", tr.desc, tr.done, err)
	}
	if m.d.Allowed {
		tr.oracle.settle(m.id, cost)
	}
	tr.take(tr.plain, store.ModePeek, tr.limits)
}

// log compares what fills the window: when, relative to the oldest, and how much.
func (tr *trace) log() {
	if _, ok := tr.store.(store.Lister); !ok {
		return
	}
	longest := tr.limits[0].Window
	for _, l := range tr.limits {
		longest = max(longest, l.Window)
	}
	entries, err := tr.plain.Log(tr.t.Context(), "k")
	if err != nil {
		tr.t.Fatal(err)
	}
	got, want := offsets(entries), offsets(tr.oracle.log(longest))
	if !slices.Equal(got, want) {
		tr.t.Fatalf("%s, step %d: log\ngot  %v\nwant %v", tr.desc, tr.done, got, want)
	}
	tr.done++
}

type offset struct {
	since time.Duration
	cost  int
}

func offsets(entries []core.Entry) []offset {
	var all []offset
	for _, e := range entries {
		all = append(all, offset{e.At.Sub(entries[0].At), e.Cost})
	}
	slices.SortFunc(all, func(a, b offset) int {
		return cmp.Or(cmp.Compare(a.since, b.since), cmp.Compare(a.cost, b.cost))
	})
	return all
}

// merge adds entries of another log, sometimes twice.
func (tr *trace) merge() {
	merger, ok := tr.store.(store.Merger)
	if !ok {
		return
	}
	var more []store.Entry
	for range tr.r.IntN(4) {
		tr.merged++
		age := time.Duration(tr.r.Int64N(int64(tr.keep)/1000)) * time.Microsecond
		more = append(more, store.Entry{ID: 1<<40 + tr.merged, Age: age, Cost: max(1, tr.someUnits(4))})
	}
	for range 1 + tr.r.IntN(2) {
		request := store.MergeRequest{Key: tr.key, Keep: tr.keep, Entries: more}
		if err := merger.Merge(tr.t.Context(), request); err != nil {
			tr.t.Fatal(err)
		}
	}
	tr.oracle.merge(more)
	tr.take(tr.plain, store.ModePeek, tr.limits)
}

// planOf is what a store is asked of limits that stand alone.
func planOf(limits core.Limits) *store.Plan {
	var p store.Plan
	for _, l := range limits {
		p.Limits = append(p.Limits, store.Limit{Quota: l.Quota, Window: l.Window})
	}
	return store.NewPlan(p)
}

func (tr *trace) reset() {
	if err := tr.plain.Reset(tr.t.Context(), "k"); err != nil {
		tr.t.Fatal(err)
	}
	tr.oracle.entries = nil
}
