package coretest

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/internal/testlen"
	"github.com/sashlimit/sash/core/store"
)

// A take of ModeUpTo gets what is left, as one entry, and a denial has the wait for one unit.
func grantsWhatIsLeft(t *testing.T, c StoreConfig) {
	s, advance := c.New(t)
	d := newDirect(t, s)
	plan := planOfOne(5, time.Minute, store.Plan{})
	want := func(cost, granted, used int, retry time.Duration) {
		t.Helper()
		a := d.take(plan, store.ModeUpTo, cost)
		if a.Granted != granted || a.Allowed != (granted > 0) || a.State[0].Used != used || a.Retry != retry ||
			a.Denied.Has(0) != (granted == 0) {
			t.Errorf("cost %d: %+v, want %d granted, %d used, a wait of %v", cost, a, granted, used, retry)
		}
	}
	want(2, 2, 0, 0)
	advance(10 * time.Second)
	want(10_000_001, 3, 2, 0) // above the quota
	part := d.id
	for range 3 {
		want(4, 0, 5, 50*time.Second) // for one unit, though 4 need a minute
	}
	want(1, 0, 5, 50*time.Second)
	d.used(plan, 5)
	advance(50*time.Second - time.Microsecond)
	want(9, 0, 5, time.Microsecond)
	advance(time.Microsecond)
	want(9, 2, 3, 0)
	want(1, 0, 5, 10*time.Second)
	if settler, ok := s.(store.Settler); ok {
		d.noError(settler.Settle(t.Context(), store.Settlement{Key: d.key, ID: part, Cost: 1}))
		d.used(plan, 3)
		want(1, 1, 3, 0)
		d.noError(settler.Settle(t.Context(), store.Settlement{Key: d.key, ID: part}))
		want(7, 2, 3, 0)
	}
}

// Of several limits the one with the least left decides. One that does not decide neither lowers the grant nor is
// denied while it has a unit left. A log with more than its quota grants nothing.
func grantsTheLeast(t *testing.T, c StoreConfig) {
	s, advance := c.New(t)
	d := newDirect(t, s)
	plan := store.NewPlan(store.Plan{Shadow: 1, Limits: []store.Limit{
		{Quota: 9, Window: time.Hour}, {Quota: 4, Window: time.Second}, {Quota: 6, Window: time.Minute},
	}})
	want := func(granted int, denied store.LimitSet, retry, shadow time.Duration) {
		t.Helper()
		a := d.take(plan, store.ModeUpTo, 8)
		if a.Granted != granted || a.Allowed != (granted > 0) || a.Denied != denied || a.Retry != retry ||
			a.Shadow != shadow {
			t.Errorf("%+v, want %d granted, %b denied, waits of %v and %v", a, granted, denied, retry, shadow)
		}
	}
	want(4, 0, 0, 0)
	want(0, 0b010, time.Second, 0)
	advance(time.Second)
	want(4, 0, 0, 0) // the limit that does not decide would have granted 2
	want(0, 0b110, time.Second, 59*time.Second)
	advance(time.Second)
	want(1, 0b100, 0, 58*time.Second)
	want(0, 0b101, time.Hour-2*time.Second, 58*time.Second)
	d.take(plan, store.ModeRecord, 5)
	want(0, 0b111, time.Hour-time.Second, time.Minute)
}

// All logs of a request grant the same, and none if one has no unit left.
func jointGrants(t *testing.T, c StoreConfig) {
	s, advance := c.New(t)
	d := newDirect(t, s)
	needSeveral(d)
	plans := []*store.Plan{planOfOne(3, time.Second, store.Plan{}), planOfOne(5, time.Minute, store.Plan{})}
	keys := []store.Key{d.key, store.NewKey("contract", "l")}
	want := func(cost, granted int, retry ...time.Duration) {
		t.Helper()
		d.id++
		var takes []store.Take
		for i, key := range keys {
			take := store.Take{Key: key, Plan: plans[i], Cost: cost, ID: d.id, Mode: store.ModeUpTo}
			takes = append(takes, take)
		}
		answers := make([]store.Answer, len(takes))
		d.noError(TakeAll(t.Context(), s, takes, answers))
		for i, a := range answers {
			if a.Granted != granted || a.Allowed != (retry[i] == 0) || a.Retry != retry[i] {
				t.Errorf("cost %d, log %d: %+v, want %d granted, a wait of %v", cost, i, a, granted, retry[i])
			}
		}
	}
	used := func(units ...int) {
		t.Helper()
		for i := range keys {
			d.key = keys[i]
			d.used(plans[i], units[i])
		}
	}
	want(2, 2, 0, 0)
	want(9, 1, 0, 0)
	used(3, 3)
	want(9, 0, time.Second, 0)
	used(3, 3)
	advance(time.Second)
	want(9, 2, 0, 0)
	used(2, 5)
	want(1, 0, 0, time.Minute-time.Second)
	advance(time.Second)
	want(4, 0, 0, time.Minute-2*time.Second)
	used(0, 5)
}

// 64 callers ask for random parts of one quota: no unit is granted twice, and none is left over.
func grantsConcurrently(t *testing.T, c StoreConfig) {
	exactlyTheQuota(t, c, testlen.Of(6, 30), testlen.Of(2000, 10_000), func(l *core.Limiter) int {
		cost := 1 + rand.IntN(40)
		d, err := l.AllowAtMost(t.Context(), "k", cost)
		if err != nil || d.Granted < 0 || d.Granted > cost || d.Allowed != (d.Granted > 0) {
			t.Errorf("AllowAtMost(%d): %+v, %v", cost, d, err)
		}
		return d.Granted
	})
}

// Many requests of any cost at once over two logs each, in either order: no log is over its quota, both record the same
// number of units, and in the end no unit is left over.
func jointGrantsConcurrently(t *testing.T, c StoreConfig) {
	s, _ := c.New(t)
	k := &crowd{direct: newDirect(t, s), name: "upto", mode: store.ModeUpTo}
	needSeveral(k.direct)
	k.user = planOfOne(testlen.Of(60, 250), time.Hour, store.Plan{})
	k.all = planOfOne(testlen.Of(700, 3000), time.Hour, store.Plan{})
	k.run(64, testlen.Of(5, 20), func() int { return 1 + rand.IntN(9) })
	for user := range k.admitted {
		k.take(user, k.all.Limits[0].Quota, false) // what a store that asks in turn has left over
	}
	k.checkWhole()
}
