package coretest

import (
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/sashlimit/sash/core/internal/testlen"
	"github.com/sashlimit/sash/core/store"
)

// units is a request over two logs, such as one of requests and one of tokens, whose takes have costs of their own.
type units struct {
	*direct

	plans [2]*store.Plan
	keys  [2]store.Key
	mode  store.Mode

	repeats bool // see StoreConfig.Repeats
}

// take sends a request with these costs.
func (u *units) take(costs [2]int) (takes []store.Take, answers []store.Answer) {
	u.t.Helper()
	u.id++
	for i, cost := range costs {
		takes = append(takes, store.Take{Key: u.keys[i], Plan: u.plans[i], Cost: cost, ID: u.id, Mode: u.mode})
	}
	answers = make([]store.Answer, len(takes))
	u.noError(TakeAll(u.t.Context(), u.store, takes, answers))
	return takes, answers
}

// want sends a request and compares which logs have room, how many units they held, and how long they deny it.
func (u *units) want(costs [2]int, allowed [2]bool, used [2]int, retry [2]time.Duration) {
	u.t.Helper()
	_, answers := u.take(costs)
	for i, a := range answers {
		if u.repeats && u.mode == store.ModeChargeDenied && !allowed[i] { // the denial has pushed out older units
			used[i] = a.State[0].Used
		}
		if a.Allowed != allowed[i] || a.State[0].Used != used[i] || a.Retry != retry[i] ||
			a.Denied.Has(0) == allowed[i] {
			u.t.Errorf("mode %v, costs %d, log %d: %+v, want allowed %v, %d used, a wait of %v",
				u.mode, costs, i, a, allowed[i], used[i], retry[i])
		}
	}
}

// hold compares how many units the logs have.
func (u *units) hold(want [2]int) {
	u.t.Helper()
	for i := range want {
		u.key = u.keys[i]
		u.used(u.plans[i], want[i])
	}
}

// Each log of a request has its own cost: all are charged, or none, and one that never has room says so by itself.
func jointCosts(t *testing.T, c StoreConfig) {
	s, advance := c.New(t)
	u := &units{direct: newDirect(t, s), repeats: c.Repeats}
	needSeveral(u.direct)
	u.plans = [2]*store.Plan{
		planOfOne(3, time.Second, store.Plan{}), planOfOne(1000, time.Minute, store.Plan{Bound: 1000}),
	}
	u.keys = [2]store.Key{u.key, store.NewKey("contract", "tokens")}
	const second, minute = time.Second, time.Minute
	both, first, none := [2]bool{true, true}, [2]bool{true, false}, [2]time.Duration{}

	u.want([2]int{1, 500}, both, [2]int{0, 0}, none)
	u.want([2]int{1, 501}, first, [2]int{1, 500}, [2]time.Duration{0, minute})
	u.want([2]int{3, 1}, [2]bool{false, true}, [2]int{1, 500}, [2]time.Duration{second, 0})
	u.want([2]int{2, 499}, both, [2]int{1, 500}, none)
	u.want([2]int{1, 2}, [2]bool{}, [2]int{3, 999}, [2]time.Duration{second, minute})
	u.hold([2]int{3, 999})

	advance(second)
	u.want([2]int{1, 1001}, first, [2]int{0, 999}, none) // no wait helps
	u.hold([2]int{0, 999})
	u.mode = store.ModePeek
	u.want([2]int{3, 1}, both, [2]int{0, 999}, none)
	u.want([2]int{4, 2}, [2]bool{}, [2]int{0, 999}, [2]time.Duration{0, minute - second})
	u.hold([2]int{0, 999})

	u.mode = store.ModeChargeDenied
	u.want([2]int{1, 2}, first, [2]int{0, 999}, [2]time.Duration{0, minute - second})
	u.hold([2]int{0, 1000}) // the log without room has the denial
	u.want([2]int{1, 1001}, first, [2]int{0, 1000}, none)
	u.hold([2]int{0, 1000}) // but none that no wait helps

	if u.mode = store.ModeRecord; !u.records() {
		t.Errorf("mode %v denies", u.mode)
	}
	u.hold([2]int{2, 1700})
	if settler, ok := s.(store.Settler); ok {
		for i, cost := range []int{1, 0} {
			u.noError(settler.Settle(t.Context(), store.Settlement{Key: u.keys[i], ID: u.id - 2, Cost: cost}))
		}
		u.hold([2]int{1, 1000})
	}
	u.mode = store.ModeUpTo
	takes, answers := u.take([2]int{2, 2})
	takes[1].Cost = 3
	if err := TakeAll(t.Context(), s, takes, answers); !errors.As(err, new(*store.ConfigError)) {
		t.Errorf("costs that differ in mode %v: %v, want a ConfigError", u.mode, err)
	}
}

// records sends a request that is recorded beyond the quota of a log, and reports whether both logs admit it.
func (u *units) records() bool {
	_, answers := u.take([2]int{2, 700})
	return answers[0].Allowed && answers[1].Allowed
}

// Many requests at once over two logs each, whose takes cost what they cost, in either order: no log is over its quota,
// and what is denied by one log takes nothing from the other.
func jointCostsConcurrently(t *testing.T, c StoreConfig) {
	s, _ := c.New(t)
	k := &crowd{direct: newDirect(t, s), name: "costs", each: 500}
	needSeveral(k.direct)
	k.user = planOfOne(testlen.Of(30, 120), time.Hour, store.Plan{})
	k.all = planOfOne(testlen.Of(200, 1000)*k.each, time.Hour, store.Plan{})
	k.run(32, testlen.Of(12, 60), func() int { return 1 + rand.IntN(3) })
	for user := range k.admitted {
		for k.take(user, 1, false) > 0 { // where takes are made one after the other, some were denied for a moment only
			continue
		}
	}
	k.checkWhole()
}
