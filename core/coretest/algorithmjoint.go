package coretest

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/store"
)

// Where one limit of a request denies, those of other algorithms, keys and logs are as they were.
func jointAlgorithms(t *testing.T, c StoreConfig) {
	k := newCounting(t, c)
	needSeveral(k.direct)
	k.to(time.Minute, time.Second)
	var takes []store.Take
	var quotas []int
	for i, a := range append([]store.Algorithm{store.SlidingLog}, k.algorithms...) {
		quotas = append(quotas, 5+2*i)
		takes = append(takes, store.Take{
			Key: store.NewKey("counting:joint", fmt.Sprint(a)), Plan: planFor(limitOf(a, quotas[i], time.Minute)),
		})
	}
	ask := func(mode store.Mode, cost int) []store.Answer {
		t.Helper()
		k.id++
		answers := make([]store.Answer, len(takes))
		for i := range takes {
			takes[i].Cost, takes[i].Mode, takes[i].ID = cost, mode, k.id
		}
		k.noError(TakeAll(t.Context(), k.store, takes, answers))
		return answers
	}
	want := func(used int) {
		t.Helper()
		for i, a := range ask(store.ModePeek, 1) {
			if a.State[0].Used != used {
				t.Errorf("limit %d: %+v, want %d units used", i, a, used)
			}
		}
	}
	ask(store.ModeCharge, 4)
	want(4)
	for i, a := range ask(store.ModeCharge, 2) { // the log has room for one
		if a.Allowed != (i > 0) || (a.Retry > 0) != (i == 0) || a.State[0].Used != 4 {
			t.Errorf("limit %d: %+v, want a denial of the first and nothing charged", i, a)
		}
	}
	want(4)
	for i, a := range ask(store.ModeUpTo, 3) {
		if a.Granted != 1 || !a.Allowed {
			t.Errorf("limit %d: %+v, want 1 unit granted", i, a)
		}
	}
	want(5)
	// Each of the others denies alone as well.
	for i := 1; i < len(takes); i++ {
		k.step(3 * time.Minute)
		k.key = takes[i].Key
		k.take(takes[i].Plan, store.ModeCharge, quotas[i])
		for n, a := range ask(store.ModeCharge, 1) {
			if a.Allowed != (n != i) || (a.Retry > 0) != (n == i) {
				t.Errorf("limit %d is full, limit %d: %+v", i, n, a)
			}
		}
		for n, a := range ask(store.ModePeek, 1) {
			if want := map[bool]int{true: quotas[i]}[n == i]; a.State[0].Used != want {
				t.Errorf("limit %d is full, limit %d: %+v, want %d used", i, n, a, want)
			}
		}
	}
}

// Many requests at once over the numbers of a user and those of all, in either order: neither admits more than its
// quota or than it counts. A store of several servers may count requests that were denied.
func jointAlgorithmsConcurrently(t *testing.T, c StoreConfig) {
	eachAlgorithm(t, c, func(k *counting, a store.Algorithm) {
		needSeveral(k.direct)
		all := &crowd{direct: newDirect(t, k.store), name: fmt.Sprint("counting", int(a))}
		all.user = planFor(limitOf(k.algorithms[(int(a)+1)%len(k.algorithms)], 30, time.Hour))
		all.all = planFor(limitOf(a, 300, time.Hour))
		all.run(64, 10, func() int { return 1 })
		all.check(func(used, admitted, quota int) {
			if used < admitted || used > quota {
				t.Errorf("%d units used of %d, want at least the %d that were admitted", used, quota, admitted)
			}
		})
	})
}

// Limits of several algorithms and keys in one policy: a limiter waits for the last of those that deny.
func jointAlgorithmPolicy(t *testing.T, c StoreConfig) {
	k := newCounting(t, c)
	needSeveral(k.direct)
	type org struct{}
	limits := core.Limits{{Name: "log", Quota: 100, Window: time.Minute}}
	for i, a := range k.algorithms {
		limit := coreLimit(a, 6+2*i, time.Minute)
		limit.Name = fmt.Sprint("own", i)
		limits = append(limits, limit)
	}
	shared := coreLimit(k.algorithms[0], 7, time.Minute).By(core.ByValue(org{}))
	shared.Name = "organisation"
	l := limiter(t, k.store, append(limits, shared), core.WithName("mixed"))
	ctx := context.WithValue(t.Context(), org{}, "acme")
	k.to(time.Minute, time.Second)
	ask := func(key string, cost int, allowed bool, violated string) core.Decision {
		t.Helper()
		d, err := l.AllowN(ctx, key, cost)
		if err != nil || d.Allowed != allowed || !allowed && fmt.Sprint(d.Violated) != violated {
			t.Errorf("%s, %d units: %+v, %v; want allowed %v, violated %s", key, cost, d, err, allowed, violated)
		}
		return d
	}
	ask("ann", 6, true, "")
	for range 3 {
		ask("ann", 1, false, "[own0]")
		ask("bob", 2, false, "[organisation]")
	}
	ask("bob", 1, true, "")
	d := ask("bob", 1, false, "[organisation]")
	k.step(d.RetryAfter - time.Microsecond)
	ask("bob", 1, false, "[organisation]")
	k.step(time.Microsecond)
	ask("bob", 1, true, "")
	k.noError(l.Reset(ctx, "bob"))
	if d, err := l.Peek(ctx, "bob"); err != nil || d.Used != 0 {
		t.Errorf("after a reset: %+v, %v", d, err)
	}
}
