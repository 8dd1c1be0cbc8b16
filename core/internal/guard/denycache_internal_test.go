package guard

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/sashlimit/sash/core/store"
)

// After freshUntil one lookup misses, until graceUntil. A cost that never fits is never found.
func TestOneLookupMissesInGrace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDenyCache(time.Second, time.Now())
		take := &store.Take{Key: store.NewKey("p", "k"), Plan: planOf(5, time.Hour), Cost: 1}
		tooLarge := &store.Take{Key: take.Key, Plan: take.Plan, Cost: 6}
		denied := &store.Answer{Retry: time.Hour, State: [store.MaxLimits]store.State{{Used: 5, Reset: time.Hour}}}
		take.Plan.Judge(denied, 1, store.ModeCharge)
		d.update(take, denied, d.version(take, 0))
		found := func(t *store.Take) bool { return d.lookup(t, new(store.Answer)) }
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
		d := newDenyCache(time.Minute, time.Now())
		d.keepForOutages(1)
		small := &store.Take{Key: store.NewKey("p", "k"), Cost: 1, Plan: store.NewPlan(store.Plan{Limits: []store.Limit{
			{Quota: 8, Window: time.Minute}, {Quota: 10, Window: time.Hour},
		}})}
		large := &store.Take{Key: small.Key, Plan: small.Plan, Cost: 3}
		denied := &store.Answer{Retry: time.Minute, State: [store.MaxLimits]store.State{
			{Used: 8, Reset: time.Minute}, {Used: 8, Reset: time.Hour},
		}}
		small.Plan.Judge(denied, 1, store.ModeCharge)
		d.update(small, denied, d.version(small, 0))
		for _, c := range []struct {
			name   string
			take   *store.Take
			lookup func(*store.Take, *store.Answer) bool
			want   store.LimitSet
		}{
			{"cost 1", small, d.lookup, 0b01},
			{"cost 1 in an outage", small, d.lookupInOutage, 0b01},
			{"cost 3 in an outage", large, d.lookupInOutage, 0b11},
		} {
			var a store.Answer
			if !c.lookup(c.take, &a) || a.Allowed || a.Denied != c.want {
				t.Errorf("%s: %+v, want a denial by %b", c.name, a, c.want)
			}
		}
	})
}

// planOf returns a plan of one limit.
func planOf(quota int, window time.Duration) *store.Plan {
	return store.NewPlan(store.Plan{Limits: []store.Limit{{Quota: quota, Window: window}}})
}
