package coretest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/store"
)

// eachAlgorithm runs a test for each algorithm that the store has. Errors name it.
func eachAlgorithm(t *testing.T, c StoreConfig, f func(*counting, store.Algorithm)) {
	t.Helper()
	k := newCounting(t, c)
	for _, a := range k.algorithms {
		k.key = store.NewKey("counting", fmt.Sprint(a))
		if f(k, a); t.Failed() {
			t.Fatalf("the algorithm is a %v", a)
		}
	}
}

// coreLimit returns what limitOf returns, for a limiter.
func coreLimit(a store.Algorithm, quota int, window time.Duration) core.Limit {
	l := core.Limit{Quota: quota, Window: window}
	if a == store.TokenBucket {
		return core.TokenBucket(l, quota)
	}
	return l.With(a)
}

func planFor(l store.Limit) *store.Plan { return store.NewPlan(store.Plan{Limits: []store.Limit{l}}) }

// waits checks that a denied take of that cost has room when its wait is over, and not a microsecond before.
func (k *counting) waits(p *store.Plan, cost int) {
	k.t.Helper()
	a := k.take(p, store.ModeCharge, cost)
	if a.Allowed || a.Retry <= 0 || a.Retry%time.Microsecond != 0 {
		k.t.Fatalf("cost %d: %+v, want a denial and a wait", cost, a)
	}
	k.step(a.Retry - time.Microsecond)
	if last := k.take(p, store.ModeCharge, cost); last.Allowed || last.Retry != time.Microsecond {
		k.t.Fatalf("cost %d, 1us before the wait of %v ends: %+v, want a denial of 1us", cost, a.Retry, last)
	}
	k.step(time.Microsecond)
	if after := k.take(p, store.ModeCharge, cost); !after.Allowed {
		k.t.Fatalf("cost %d, after the wait of %v: %+v, want it allowed", cost, a.Retry, after)
	}
}

// Waits are exact to the microsecond, for any cost, wherever in a period a quota is used up.
func algorithmBoundary(t *testing.T, c StoreConfig) {
	eachAlgorithm(t, c, func(k *counting, a store.Algorithm) {
		for n, window := range []time.Duration{1500 * time.Millisecond, time.Second, 77777 * time.Microsecond} {
			for _, part := range []int{0, 3, 5, 9} {
				k.key = store.NewKey("counting:boundary", fmt.Sprint(a, n, part))
				p := planFor(limitOf(a, 7, window))
				k.to(window, window*time.Duration(part)/10)
				k.take(p, store.ModeCharge, 4)
				k.step(window / 13)
				if got := k.take(p, store.ModeUpTo, 9); got.Granted != 7-got.State[0].Used {
					t.Fatalf("%+v, want all that is left", got)
				}
				for _, cost := range []int{1, 5, 7, 2} {
					for n := 0; n < 10 && k.take(p, store.ModePeek, cost).Allowed; n++ {
						k.take(p, store.ModeCharge, 1)
					}
					k.waits(p, cost)
				}
			}
		}
	})
}

// algorithmSequences has the sequences that everybody tries first.
func algorithmSequences(t *testing.T, c StoreConfig) {
	eachAlgorithm(t, c, func(k *counting, a store.Algorithm) {
		name := core.WithName(fmt.Sprintf("sequences-%d", a))
		want := func(l *core.Limiter, ctx context.Context, key string, allowed bool) {
			t.Helper()
			d, err := l.Allow(ctx, key)
			if err != nil || d.Allowed != allowed {
				t.Errorf("%s: %+v, %v; want allowed %v", key, d, err, allowed)
			}
		}
		k.to(time.Minute, 20*time.Second)
		once := limiter(t, k.store, coreLimit(a, 1, time.Second), name)
		want(once, t.Context(), "ann", true)
		want(once, t.Context(), "ann", false)
		want(once, t.Context(), "bob", true)
		want(once, t.Context(), "bob", false)
		k.step(3 * time.Second)
		want(once, t.Context(), "ann", true)

		// One value is limited, and all others are not.
		type user struct{}
		chosen := limiter(t, k.store, core.LimitBy(func(ctx context.Context) core.Limits {
			if ctx.Value(user{}) == "ann" {
				return core.Limits{coreLimit(a, 1, time.Second)}
			}
			return core.Limits{coreLimit(a, core.MaxQuota, time.Second)}
		}), core.WithName(fmt.Sprintf("chosen-%d", a)))
		for n := range 5 {
			want(chosen, context.WithValue(t.Context(), user{}, "ann"), "ann", n == 0)
			want(chosen, context.WithValue(t.Context(), user{}, "bob"), "bob", true)
		}

		// Two in a minute, at :50, :05 and :15: a fixed window begins anew at :00.
		two := limiter(t, k.store, coreLimit(a, 2, time.Minute), core.WithName(fmt.Sprintf("two-%d", a)))
		k.to(time.Minute, 50*time.Second)
		want(two, t.Context(), "ann", true)
		k.step(15 * time.Second)
		want(two, t.Context(), "ann", true)
		k.step(10 * time.Second)
		want(two, t.Context(), "ann", a == store.FixedWindow)
	})
}

// Around the end of a period a fixed window admits twice its quota, and a sliding counter that weighs the period before
// by what the window covers of it admits one: with the part that has passed it would admit two as well.
func algorithmAtTheEdge(t *testing.T, c StoreConfig) {
	eachAlgorithm(t, c, func(k *counting, a store.Algorithm) {
		const quota, window = 10, 10 * time.Second
		begin := map[store.Algorithm]int{store.FixedWindow: quota}
		middle := map[store.Algorithm]int{store.SlidingCounter: quota / 2, store.TokenBucket: quota / 2}
		p := planFor(limitOf(a, quota, window))
		admitted := func() (n int) {
			for n <= 3*quota && k.take(p, store.ModeCharge, 1).Allowed {
				n++
			}
			return n
		}
		k.to(window, window-time.Microsecond)
		if n := admitted(); n != quota {
			t.Errorf("%d admitted at the end of a period, want %d", n, quota)
		}
		k.step(time.Microsecond)
		if n := admitted(); n != begin[a] {
			t.Errorf("%d admitted at the beginning of the next period, want %d", n, begin[a])
		}
		k.step(window / 2)
		if n := admitted(); n != middle[a] {
			t.Errorf("%d admitted in the middle of it, want %d", n, middle[a])
		}
	})
}

// A peek and a denial change nothing, a cost is charged whole or not at all, and a part of it by AllowAtMost.
func algorithmCosts(t *testing.T, c StoreConfig) {
	eachAlgorithm(t, c, func(k *counting, a store.Algorithm) {
		k.to(time.Minute, time.Second)
		l := limiter(t, k.store, coreLimit(a, 10, time.Minute), core.WithName(fmt.Sprintf("costs-%d", a)))
		want := func(what string, d core.Decision, err error, granted, remaining, used int) {
			t.Helper()
			if err != nil || d.Granted != granted || d.Remaining != remaining || d.Used != used {
				t.Errorf("%s: %+v, %v; want %d granted, %d remaining, %d used", what, d, err, granted, remaining, used)
			}
		}
		peek := func(remaining int) {
			t.Helper()
			for range 3 {
				d, err := l.Peek(t.Context(), "k")
				want("Peek", d, err, 0, remaining, 10-remaining)
			}
		}
		peek(10)
		want("AllowN", allow(t, l, "k", 4), nil, 4, 6, 0)
		peek(6)
		want("AllowN", allow(t, l, "k", 7), nil, 0, 6, 4)
		if d := allow(t, l, "k", 11); !d.Never() || d.RetryAfter != 0 || d.Remaining != 6 {
			t.Errorf("a cost above the quota: %+v", d)
		}
		peek(6)
		d, err := l.AllowAtMost(t.Context(), "k", 5)
		want("AllowAtMost", d, err, 5, 1, 4)
		d, err = l.AllowAtMost(t.Context(), "k", 50)
		want("AllowAtMost", d, err, 1, 0, 9)
		d, err = l.AllowAtMost(t.Context(), "k", 50)
		want("AllowAtMost", d, err, 0, 0, 10)
		if one := allow(t, l, "k", 1); d.Allowed || d.RetryAfter <= 0 || d.RetryAfter != one.RetryAfter {
			t.Errorf("nothing granted: %+v, want the wait for one unit, %v", d, one.RetryAfter)
		}
		peek(0)
		k.noError(l.Reset(t.Context(), "k"))
		peek(10)
		k.noError(l.Reset(t.Context(), "nobody"))
	})
}

// 64 callers at once get exactly a quota.
func algorithmsConcurrently(t *testing.T, c StoreConfig) {
	eachAlgorithm(t, c, func(k *counting, a store.Algorithm) {
		const callers, each, quota = 64, 8, 300
		l := limiter(t, k.store, coreLimit(a, quota, time.Hour), core.WithName(fmt.Sprintf("concurrent-%d", a)))
		var units atomic.Int64
		var wg sync.WaitGroup
		for range callers {
			wg.Go(func() {
				for range each {
					cost := 1 + rand.IntN(2)
					d, err := l.AllowN(t.Context(), "k", cost)
					if err != nil {
						t.Error(err)
					}
					units.Add(int64(d.Granted))
				}
			})
		}
		wg.Wait()
		if d := allow(t, l, "k", 1); d.Allowed { // only those of cost 2 may have been denied
			units.Add(1)
		}
		if units.Load() != quota {
			t.Errorf("%d units admitted for %d requests, want %d", units.Load(), callers*each, quota)
		}
	})
}

// A limit whose quota changes keeps what was used, if it keeps its name.
func algorithmQuotaChanges(t *testing.T, c StoreConfig) {
	eachAlgorithm(t, c, func(k *counting, a store.Algorithm) {
		k.to(time.Hour, time.Minute)
		quota := 10
		l := limiter(t, k.store, core.LimitBy(func(context.Context) core.Limits {
			limit := coreLimit(a, 10, time.Minute) // a bucket is filled at the same rate
			if a == store.TokenBucket {
				limit = core.TokenBucket(core.PerMinute(10), quota)
			}
			limit.Quota = map[bool]int{true: limit.Quota, false: quota}[a == store.TokenBucket]
			limit.Name = "named"
			return core.Limits{limit}
		}), core.WithName(fmt.Sprintf("changes-%d", a)))
		if d := allow(t, l, "k", 8); !d.Allowed {
			t.Fatalf("%+v", d)
		}
		quota = 12
		if d := allow(t, l, "k", 5); d.Allowed || d.Remaining != 4 {
			t.Errorf("a larger quota: %+v, want a denial of 5 units with 4 left", d)
		}
		if d := allow(t, l, "k", 4); !d.Allowed || d.Remaining != 0 {
			t.Errorf("a larger quota: %+v, want the 4 units that are left", d)
		}
		quota = 5
		d := allow(t, l, "k", 2)
		if d.Allowed || d.Remaining != 0 || d.RetryAfter <= 0 {
			t.Fatalf("a smaller quota: %+v, want a denial", d)
		}
		k.step(d.RetryAfter - time.Microsecond)
		if d := allow(t, l, "k", 2); d.Allowed || d.RetryAfter != time.Microsecond {
			t.Errorf("a smaller quota, before the wait ends: %+v, want a denial of 1us", d)
		}
		k.step(time.Microsecond)
		if d := allow(t, l, "k", 2); !d.Allowed {
			t.Errorf("a smaller quota, after a wait of %v: %+v", d.RetryAfter, d)
		}
	})
}

// Limits of one policy and key have numbers of their own: of each algorithm, and of each name.
func algorithmsApart(t *testing.T, c StoreConfig) {
	k := newCounting(t, c)
	policies := []core.Policy{core.PerMinute(2)}
	for _, a := range k.algorithms {
		for _, name := range []string{"", "first", "second", "2-per-minute"} {
			limit := coreLimit(a, 2, time.Minute)
			limit.Name = name
			if name == "2-per-minute" && a != store.TokenBucket {
				continue // which is its name without one
			}
			policies = append(policies, limit)
		}
	}
	for _, p := range policies {
		l := limiter(t, k.store, p, core.WithName("apart"))
		for n := range 3 {
			if d := allow(t, l, "k", 1); d.Allowed != (n < 2) {
				t.Errorf("%+v, request %d: %+v", p, n+1, d)
			}
		}
	}
	for _, p := range policies {
		if d := allow(t, limiter(t, k.store, p, core.WithName("apart")), "k", 1); d.Allowed {
			t.Errorf("%+v: allowed again: %+v", p, d)
		}
	}
}

// calendarPeriods follows a calendar from its first period to its last one, and through a change of it.
func calendarPeriods(t *testing.T, c StoreConfig) {
	k := newCounting(t, c)
	if k.algorithms[0] != store.FixedWindow {
		t.Skip("the store has no fixed windows")
	}
	const minute = int64(time.Minute / time.Microsecond)
	k.to(time.Minute, 0)
	begin := k.now
	k.key = store.NewKey("counting:calendar", "k")
	calendar := store.Calendar{begin, begin + 3*minute, begin + 4*minute, begin + 9*minute}
	limit := store.Limit{Quota: 3, Window: 5 * time.Minute, Algorithm: store.FixedWindow, Calendar: &calendar}
	plan := planFor(limit)
	for period := range 3 {
		for n := range 3 {
			if a := k.take(plan, store.ModeCharge, 1); !a.Allowed || a.State[0].Used != n {
				t.Fatalf("period %d, take %d: %+v", period, n+1, a)
			}
		}
		ends := time.Duration(calendar[period+1]-k.now) * time.Microsecond
		if a := k.take(plan, store.ModePeek, 1); a.Allowed || a.Retry != ends || a.State[0].Reset != ends {
			t.Errorf("period %d: %+v, want a wait of %v", period, a, ends)
		}
		k.step(ends - time.Microsecond)
		if a := k.take(plan, store.ModeCharge, 1); a.Allowed || a.Retry != time.Microsecond {
			t.Errorf("at the end of period %d: %+v, want a denial of 1us", period, a)
		}
		k.step(time.Microsecond)
	}

	// The calendar changes within a period that both have.
	calendar = store.Calendar{k.now - minute, k.now, k.now + 2*minute, k.now + 4*minute}
	plan = planFor(limit)
	k.step(time.Minute)
	k.take(plan, store.ModeCharge, 2)
	other := store.Calendar{k.now - 9*minute, k.now - minute/2, k.now + minute/2, k.now + 9*minute}
	limit.Calendar = &other
	plan = planFor(limit)
	k.step(time.Second)
	k.used(plan, 2)
	k.take(plan, store.ModeCharge, 1)
	k.used(plan, 3)
	k.step(time.Duration(other[2]-k.now-1) * time.Microsecond)
	k.used(plan, 3)
	k.step(time.Microsecond)
	k.used(plan, 0)
}
