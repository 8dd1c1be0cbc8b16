package guard

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/sashlimit/sash/core/store"
)

// When a denial has grown old one asks again; what can never pass is another question.
func TestWhoAsksAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDenyCache(time.Second, time.Now())
		take := &store.Take{Key: store.NewKey("p", "k"), Plan: planOf(5, time.Hour), Cost: 1}
		dear := &store.Take{Key: take.Key, Plan: take.Plan, Cost: 6}
		denied := &store.Answer{Retry: time.Hour, State: [store.MaxLimits]store.State{{Used: 5, Reset: time.Hour}}}
		take.Plan.Judge(denied, 1, store.ModeCharge)
		d.note(take, denied, d.expect(take, 0))
		known := func(t *store.Take) bool { return d.answer(t, new(store.Answer)) }
		if !known(take) || known(dear) {
			t.Error("a fresh denial is not told, or told to what can never pass")
		}
		time.Sleep(time.Second)
		if known(dear) || known(take) || !known(take) {
			t.Error("want one to ask, and not what can never pass")
		}
		time.Sleep(time.Second / 16)
		if known(take) {
			t.Error("a denial is told for too long")
		}
	})
}

// planOf is a plan of one limit.
func planOf(quota int, window time.Duration) *store.Plan {
	return store.NewPlan(store.Plan{Limits: []store.Limit{{Quota: quota, Window: window}}})
}
