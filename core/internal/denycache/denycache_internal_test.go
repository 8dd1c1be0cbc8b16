package denycache

import (
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sashlimit/sash/core/store"
)

// After freshUntil one lookup misses, until graceUntil. A cost that never fits is never found.
func TestOneLookupMissesInGrace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := New(time.Second, time.Now(), false, 0)
		take := &store.Take{Key: store.NewKey("p", "k"), Plan: planOf(5, time.Hour), Cost: 1}
		tooLarge := &store.Take{Key: take.Key, Plan: take.Plan, Cost: 6}
		denied := &store.Answer{Retry: time.Hour, State: [store.MaxLimits]store.State{{Used: 5, Reset: time.Hour}}}
		take.Plan.Judge(denied, 1, store.ModeCharge)
		d.learn(take, denied)
		found := func(t *store.Take) bool { return d.Lookup([]store.Take{*t}, make([]store.Answer, 1)) }
		if !found(take) || found(tooLarge) {
			t.Error("a fresh denial is not found, or is found for a cost that never fits")
		}
		time.Sleep(time.Second)
		if found(tooLarge) || found(take) || !found(take) {
			t.Error("want one lookup to miss, and none with a cost that never fits to be found")
		}
		time.Sleep(time.Second / 16)
		if found(take) {
			t.Error("a denial is found after graceUntil")
		}
	})
}

// A cached denial names the limits that deny what is asked. In an outage it also answers a larger cost, which further
// limits may deny.
func TestLimitsOfCachedDenials(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := New(time.Minute, time.Now(), true, 1)
		small := &store.Take{Key: store.NewKey("p", "k"), Cost: 1, Plan: store.NewPlan(store.Plan{Limits: []store.Limit{
			{Quota: 8, Window: time.Minute}, {Quota: 10, Window: time.Hour},
		}})}
		large := &store.Take{Key: small.Key, Plan: small.Plan, Cost: 3}
		denied := &store.Answer{Retry: time.Minute, State: [store.MaxLimits]store.State{
			{Used: 8, Reset: time.Minute}, {Used: 8, Reset: time.Hour},
		}}
		small.Plan.Judge(denied, 1, store.ModeCharge)
		d.learn(small, denied)
		inOutage := func(takes []store.Take, answers []store.Answer) bool {
			var known [store.MaxLimits]bool
			d.LookupInOutage(takes, answers, &known)
			return known[0]
		}
		for _, c := range []struct {
			name   string
			take   *store.Take
			lookup func([]store.Take, []store.Answer) bool
			want   store.LimitSet
		}{
			{"cost 1", small, d.Lookup, 0b01},
			{"cost 1 in an outage", small, inOutage, 0b01},
			{"cost 3 in an outage", large, inOutage, 0b11},
		} {
			a := make([]store.Answer, 1)
			if !c.lookup([]store.Take{*c.take}, a) || a[0].Allowed || a[0].Denied != c.want {
				t.Errorf("%s: %+v, want a denial by %b", c.name, a, c.want)
			}
		}
	})
}

// A flood of keys that are denied does not fill the memory.
func TestDenyCacheIsBounded(t *testing.T) {
	d, plan := New(time.Minute, time.Now(), false, 0), planOf(1, time.Hour)
	denied := &store.Answer{Retry: time.Hour, State: [store.MaxLimits]store.State{{Used: 1, Reset: time.Hour}}}
	for i := range leastEntries + 100 {
		take := &store.Take{Key: store.NewKey("p", strconv.Itoa(i)), Plan: plan, Cost: 1}
		d.learn(take, denied)
	}
	if n := d.Len(); n > leastEntries || n < leastEntries/2 {
		t.Errorf("%d entries, want at most %d, and not much less", n, leastEntries)
	}
}

// learn brings the cache up to date with the store's answer to t.
func (d *Cache) learn(t *store.Take, a *store.Answer) {
	takes, versions := []store.Take{*t}, make([]Version, 1)
	d.ReadVersions(takes, 0, versions)
	d.Update(takes, []store.Answer{*a}, true, versions)
}

// planOf returns a plan of one limit.
func planOf(quota int, window time.Duration) *store.Plan {
	return store.NewPlan(store.Plan{Limits: []store.Limit{{Quota: quota, Window: window}}})
}
