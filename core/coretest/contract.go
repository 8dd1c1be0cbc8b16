package coretest

import (
	"slices"
	"testing"
	"time"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/store"
)

// direct asks one log of a store without a limiter.
type direct struct {
	t     *testing.T
	store core.Store
	key   store.Key
	id    uint64 // of the last take
}

func newDirect(t *testing.T, s core.Store) *direct {
	return &direct{t: t, store: s, key: store.NewKey("contract", "k")}
}

func (d *direct) take(p *store.Plan, mode store.Mode, cost int) store.Answer {
	d.t.Helper()
	d.id++
	a, err := Take(d.t.Context(), d.store, store.Take{Key: d.key, Plan: p, Cost: cost, ID: d.id, Mode: mode})
	if err != nil {
		d.t.Fatalf("take %d, mode %d, cost %d: %v", d.id, mode, cost, err)
	}
	return a
}

// used peeks, and compares the units in the window of p's first limit.
func (d *direct) used(p *store.Plan, want int) {
	d.t.Helper()
	if got := d.take(p, store.ModePeek, 1).State[0].Used; got != want {
		d.t.Errorf("%d units used in %v, want %d", got, p.Limits[0].Window, want)
	}
}

func (d *direct) noError(err error) {
	d.t.Helper()
	if err != nil {
		d.t.Fatal(err)
	}
}

// settler returns the store as a Settler, or skips the test.
func (d *direct) settler() store.Settler { return optional[store.Settler](d, "store.Settler") }
func (d *direct) lister() store.Lister   { return optional[store.Lister](d, "store.Lister") }
func (d *direct) merger() store.Merger   { return optional[store.Merger](d, "store.Merger") }
func (d *direct) renewer() store.Renewer { return optional[store.Renewer](d, "store.Renewer") }

func optional[I any](d *direct, name string) I {
	able, ok := d.store.(I)
	if !ok {
		d.t.Skipf("the store is no %s", name)
	}
	return able
}

// planOfOne returns a plan of one limit, with p's other fields.
func planOfOne(quota int, window time.Duration, p store.Plan) *store.Plan {
	p.Limits = []store.Limit{{Quota: quota, Window: window}}
	return store.NewPlan(p)
}

// A zero Key and a take without a plan are errors, of each method.
func invalidQuestions(t *testing.T, c StoreConfig) {
	s, _ := c.New(t)
	plan := planOfOne(1, time.Minute, store.Plan{})
	key := store.NewKey("contract", "k")
	want := func(what string, err error) {
		t.Helper()
		if err == nil {
			t.Errorf("%s: no error", what)
		}
	}
	for mode := store.ModeCharge; mode <= store.ModeChargeDenied; mode++ {
		for what, take := range map[string]store.Take{
			"Take with the zero Key":          {Plan: plan},
			"Take without a Plan":             {Key: key},
			"Take with a Plan without limits": {Key: key, Plan: new(store.Plan)},
		} {
			take.Cost, take.ID, take.Mode = 1, 1, mode
			_, err := Take(t.Context(), s, take)
			want(what, err)
		}
	}
	want("Reset with the zero Key", s.Reset(t.Context(), store.Key{}))
	if settler, ok := s.(store.Settler); ok {
		want("Settle with the zero Key", settler.Settle(t.Context(), store.Settlement{ID: 1, Cost: 1}))
	}
	if lister, ok := s.(store.Lister); ok {
		_, err := lister.Log(t.Context(), store.Key{}, time.Minute)
		want("Log with the zero Key", err)
	}
	if merger, ok := s.(store.Merger); ok {
		entries := []store.Entry{{ID: 1, Cost: 1}}
		request := store.MergeRequest{Keep: time.Minute, Entries: entries}
		want("Merge with the zero Key", merger.Merge(t.Context(), request))
	}
	a, err := Take(t.Context(), s, store.Take{Key: key, Plan: plan, Cost: 1, ID: 1})
	if err != nil || !a.Allowed || a.State[0].Used != 0 {
		t.Errorf("a take afterwards: %+v, %v; want it allowed", a, err)
	}
}

// A plan whose Keep is shorter must not remove what a longer one has kept.
func longestKeepHolds(t *testing.T, c StoreConfig) {
	s, advance := c.New(t)
	d := newDirect(t, s)
	hour := planOfOne(10, time.Hour, store.Plan{Varies: true})
	second := planOfOne(10, time.Second, store.Plan{Varies: true})
	d.take(hour, store.ModeCharge, 1)
	for i := range 4 {
		advance(10 * time.Second)
		d.used(second, 0)
		d.take(second, store.ModeCharge, 1)
		d.used(hour, i+2)
	}
}

// What ModeRecord and ModeChargeDenied record beyond what they keep removes the oldest units.
func oldestUnitsAreTrimmed(t *testing.T, c StoreConfig) {
	s, advance := c.New(t)
	d := newDirect(t, s)
	denied := planOfOne(2, time.Hour, store.Plan{Bound: 5})
	d.take(denied, store.ModeCharge, 2)
	for range 4 {
		advance(time.Second)
		if a := d.take(denied, store.ModeChargeDenied, 1); a.Allowed || !a.Denied.Has(0) {
			t.Errorf("a take beyond the quota: %+v, want a denial", a)
		}
	}
	d.used(denied, 5)

	d.key = store.NewKey("contract", "recorded")
	const cost = 10_000
	recorded := planOfOne(1, time.Hour, store.Plan{})
	for range store.MaxRecorded/cost + 1 {
		if a := d.take(recorded, store.ModeRecord, cost); !a.Allowed || a.Retry != 0 {
			t.Errorf("a take of ModeRecord: %+v, want it allowed", a)
		}
	}
	d.used(recorded, store.MaxRecorded)
}

// Settle changes a take that is in the log whole, and nothing else.
func settlesWhatIsWhole(t *testing.T, c StoreConfig) {
	s, advance := c.New(t)
	d := newDirect(t, s)
	settler := d.settler()
	plan := planOfOne(3, time.Minute, store.Plan{})
	settle := func(id uint64, cost int) {
		t.Helper()
		d.noError(settler.Settle(t.Context(), store.Settlement{Key: d.key, ID: id, Cost: cost}))
	}
	settle(1, 1) // there is no log
	d.used(plan, 0)
	d.take(plan, store.ModeCharge, 2)
	first := d.id
	settle(first, 1)
	d.used(plan, 1)
	settle(first+1000, 3) // was never recorded
	settle(first, 2)
	d.used(plan, 2)
	advance(time.Second)
	d.take(plan, store.ModeChargeDenied, 2)
	denied := d.id
	d.used(plan, 3) // one unit of the first take was trimmed
	settle(first, 0)
	d.used(plan, 3)
	settle(denied, 0)
	d.used(plan, 1)
	settle(denied, 2) // was removed
	d.used(plan, 1)
	advance(time.Minute)
	settle(first, 2) // has left the window
	d.used(plan, 0)
}

// Log lists what is younger than the window, oldest first.
func listsTheWindow(t *testing.T, c StoreConfig) {
	s, advance := c.New(t)
	d := newDirect(t, s)
	lister := d.lister()
	log := func(window time.Duration, costs ...int) {
		t.Helper()
		entries, err := lister.Log(t.Context(), d.key, window)
		d.noError(err)
		var got []int
		for i, e := range entries {
			if got = append(got, e.Cost); e.At.Sub(entries[0].At) != time.Duration(i)*10*time.Second {
				t.Errorf("entry %d is at %v, the first at %v", i, e.At, entries[0].At)
			}
		}
		if !slices.Equal(got, costs) {
			t.Errorf("costs in the last %v: %v, want %v", window, got, costs)
		}
	}
	log(time.Hour)
	plan := planOfOne(10, time.Hour, store.Plan{})
	for cost := range 3 {
		advance(10 * time.Second)
		d.take(plan, store.ModeCharge, cost+1)
	}
	log(time.Hour, 1, 2, 3)
	log(20*time.Second+time.Microsecond, 1, 2, 3)
	log(20*time.Second, 2, 3)
	d.noError(s.Reset(t.Context(), d.key))
	log(time.Hour)
}

// Merge adds entries once, at their instants, and keeps them for as long as it says.
func mergesOnce(t *testing.T, c StoreConfig) {
	s, advance := c.New(t)
	d := newDirect(t, s)
	merger := d.merger()
	hour := planOfOne(10, time.Hour, store.Plan{Varies: true})
	second := planOfOne(10, time.Second, store.Plan{Varies: true})
	d.take(second, store.ModeCharge, 1)
	recorded := d.id
	advance(time.Millisecond)
	request := store.MergeRequest{Key: d.key, Keep: time.Hour, Varies: true, Entries: []store.Entry{
		{ID: 1001, Age: 20 * time.Minute, Cost: 2},
		{ID: 1002, Age: 2 * time.Hour, Cost: 4}, // too old for any window
		{ID: recorded, Age: time.Millisecond, Cost: 1},
	}}
	for range 2 {
		d.noError(merger.Merge(t.Context(), request))
	}
	d.used(second, 1)
	d.used(hour, 3)
	advance(40*time.Minute - time.Microsecond)
	d.used(hour, 3)
	advance(time.Microsecond)
	d.used(hour, 1)
}
