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

// planOf returns a plan of one limit.
func planOf(quota int, window time.Duration) *store.Plan {
	return store.NewPlan(store.Plan{Limits: []store.Limit{{Quota: quota, Window: window}}})
}
