package guard

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
		d := newDenyCache(time.Second, time.Now(), false, 0)
		take := &store.Take{Key: store.NewKey("p", "k"), Plan: planOf(5, time.Hour), Cost: 1}
		tooLarge := &store.Take{Key: take.Key, Plan: take.Plan, Cost: 6}
		denied := &store.Answer{Retry: time.Hour, State: [store.MaxLimits]store.State{{Used: 5, Reset: time.Hour}}}
		take.Plan.Judge(denied, 1, store.ModeCharge)
		d.learn(take, denied)
		found := func(t *store.Take) bool { return d.lookup(requestOf(t, new(store.Answer))) }
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
		d := newDenyCache(time.Minute, time.Now(), true, 1)
		small := &store.Take{Key: store.NewKey("p", "k"), Cost: 1, Plan: store.NewPlan(store.Plan{Limits: []store.Limit{
			{Quota: 8, Window: time.Minute}, {Quota: 10, Window: time.Hour},
		}})}
		large := &store.Take{Key: small.Key, Plan: small.Plan, Cost: 3}
		denied := &store.Answer{Retry: time.Minute, State: [store.MaxLimits]store.State{
			{Used: 8, Reset: time.Minute}, {Used: 8, Reset: time.Hour},
		}}
		small.Plan.Judge(denied, 1, store.ModeCharge)
		d.learn(small, denied)
		inOutage := func(r *request) bool {
			var known [store.MaxLimits]bool
			d.lookupInOutage(r, &known)
			return known[0]
		}
		for _, c := range []struct {
			name   string
			take   *store.Take
			lookup func(*request) bool
			want   store.LimitSet
		}{
			{"cost 1", small, d.lookup, 0b01},
			{"cost 1 in an outage", small, inOutage, 0b01},
			{"cost 3 in an outage", large, inOutage, 0b11},
		} {
			var a store.Answer
			if !c.lookup(requestOf(c.take, &a)) || a.Allowed || a.Denied != c.want {
				t.Errorf("%s: %+v, want a denial by %b", c.name, a, c.want)
			}
		}
	})
}

// A denial is counted although a peek has been denied just before.
func TestDenialIsCountedAfterAPeek(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCorrectedStore(t, 1)
		c.take(1, store.ModeCharge)
		c.take(1, store.ModePeek)
		if _, a, from := c.take(1, store.ModePeek); a.Allowed || from != FromCache {
			t.Fatalf("%+v from %d, want a denial from the cache", a, from)
		}
		if _, a, from := c.take(1, store.ModeChargeDenied); a.Allowed || from != FromStore {
			t.Errorf("%+v from %d, want a denial from the store", a, from)
		}
	})
}

// After a replay waits may be longer, so the store is asked again.
func TestWaitsAfterAReplay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCorrectedStore(t, 9)
		c.denials.maxAge = time.Minute
		c.take(1, store.ModeCharge)
		time.Sleep(10 * time.Second)
		c.take(7, store.ModeCharge)
		second := time.Now()
		if _, a, _ := c.take(2, store.ModeCharge); a.Retry != time.Hour-10*time.Second {
			t.Fatalf("%+v, want a wait for the first unit", a)
		}
		c.conn.down(refuses)
		if _, a, from := c.take(1, store.ModeCharge); !a.Allowed || from != FromLocal {
			t.Fatal(a, from)
		}
		c.conn.up(0)
		time.Sleep(10 * time.Second)
		if _, a, _ := c.take(2, store.ModeCharge); a.Retry != time.Hour-time.Since(second) {
			t.Errorf("%+v, want a wait for one of the next units", a)
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
}

// A flood of keys that are denied does not fill the memory.
func TestDenyCacheIsBounded(t *testing.T) {
	d, plan := newDenyCache(time.Minute, time.Now(), false, 0), planOf(1, time.Hour)
	denied := &store.Answer{Retry: time.Hour, State: [store.MaxLimits]store.State{{Used: 1, Reset: time.Hour}}}
	for i := range denyEntries + 100 {
		take := &store.Take{Key: store.NewKey("p", strconv.Itoa(i)), Plan: plan, Cost: 1}
		d.learn(take, denied)
	}
	if n := d.len(); n > denyEntries || n < denyEntries/2 {
		t.Errorf("%d entries, want at most %d, and not much less", n, denyEntries)
	}
}

// learn brings the cache up to date with the store's answer to t.
func (d *denyCache) learn(t *store.Take, a *store.Answer) {
	r := requestOf(t, a)
	versions := make([]denyVersion, 1)
	d.readVersions(r, 0, versions)
	d.update(r, versions)
}

// planOf returns a plan of one limit.
func planOf(quota int, window time.Duration) *store.Plan {
	return store.NewPlan(store.Plan{Limits: []store.Limit{{Quota: quota, Window: window}}})
}
