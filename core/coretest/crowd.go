package coretest

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/sashlimit/sash/core/store"
)

// crowd is many requests at once over two logs each, that of a user and one that all have in common, in either order.
// No log records more than its quota, and both record the same number of units, or one of them each times as many.
type crowd struct {
	*direct

	name     string
	user     *store.Plan
	all      *store.Plan
	each     int // what a unit of a user costs in the common log; 0 for 1
	mode     store.Mode
	ids      atomic.Uint64
	admitted [16]atomic.Int64 // units, by user
}

func (c *crowd) keyOf(user int) store.Key { return store.NewKey(c.name+":user", fmt.Sprint(user)) }
func (c *crowd) keyOfAll() store.Key      { return store.NewKey(c.name, "all") }

// take sends a request of a user, and returns how many units it got.
func (c *crowd) take(user, cost int, reverse bool) (units int) {
	take := store.Take{Key: c.keyOf(user), Plan: c.user, Cost: cost, ID: c.ids.Add(1), Mode: c.mode}
	takes, answers := []store.Take{take, take}, make([]store.Answer, 2)
	takes[1].Key, takes[1].Plan, takes[1].Cost = c.keyOfAll(), c.all, cost*max(c.each, 1)
	if reverse {
		slices.Reverse(takes)
	}
	if err := TakeAll(c.t.Context(), c.store, takes, answers); err != nil {
		c.t.Error(err)
	}
	a, b := answers[0], answers[1]
	switch allowed := a.Allowed && b.Allowed; {
	case c.mode != store.ModeUpTo && allowed:
		units = cost
	case c.mode == store.ModeUpTo:
		if units = a.Granted; units != b.Granted || (units > 0) != allowed || units > cost {
			c.t.Errorf("cost %d: answers %+v and %+v", cost, a, b)
		}
	}
	c.admitted[user].Add(int64(units))
	return units
}

// run has callers send so many requests each.
func (c *crowd) run(callers, each int, cost func() int) {
	var wg sync.WaitGroup
	for caller := range callers {
		wg.Go(func() {
			for range each {
				c.take(caller%len(c.admitted), cost(), caller%2 == 0)
			}
		})
	}
	wg.Wait()
}

// check calls f with what each log has recorded, and what its requests were admitted.
func (c *crowd) check(f func(used, admitted, quota int)) {
	used := func(key store.Key, p *store.Plan) int {
		c.key, c.id = key, c.ids.Add(1)
		return c.direct.take(p, store.ModePeek, 1).State[0].Used
	}
	total := 0
	for user := range c.admitted {
		n := int(c.admitted[user].Load())
		total += n
		f(used(c.keyOf(user), c.user), n, c.user.Limits[0].Quota)
	}
	f(used(c.keyOfAll(), c.all), total*max(c.each, 1), c.all.Limits[0].Quota)
}

// checkWhole checks that each log has recorded what was admitted, and that the common one is full.
func (c *crowd) checkWhole() {
	total := 0
	c.check(func(used, admitted, quota int) {
		if total = used; used != admitted || used > quota {
			c.t.Errorf("%d units recorded of %d, %d admitted", used, quota, admitted)
		}
	})
	if quota := c.all.Limits[0].Quota; total != quota {
		c.t.Errorf("%d units admitted, want %d", total, quota)
	}
}
