package coretest

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/internal/testlen"
)

// Store runs all tests that a store must pass. The optional interfaces [store.Settler], [store.Lister], [store.Merger],
// [store.Renewer], [store.Leaser] and [store.Overrider] are tested if the store has them, several logs at once and
// algorithms if its Validate accepts them: otherwise the cases Settle, Log, Merge, and those that begin with Bookings,
// Overrides, Joint, Slots, Algorithm or Calendar are skipped, and so are those steps of the cases with Oracle, which
// compare random requests with the answers of a [FakeStore]. All other cases, bans, limits that vary and shadows among
// them, need only the methods of [core.Store].
//
// After Take has returned, its arguments are overwritten: see [store.Store].
//
// The cases of algorithms run for each algorithm that the store has, and not under Repeats.
func Store(t *testing.T, c StoreConfig) {
	if c.Run == nil {
		c.Run = func(t *testing.T, name string, f func(*testing.T)) { t.Run(name, f) }
	}
	if c.Checks == 0 {
		c.Checks = 100_000
	}
	c.Checks = testlen.Of(min(c.Checks, max(c.Checks/20, 1000)), c.Checks)
	for _, test := range []struct {
		name string
		f    func(*testing.T, StoreConfig)
	}{
		{"ClassicSequence", classicSequence},
		{"ExactBoundary", exactBoundary},
		{"PollingKeepsItsQuota", pollingKeepsItsQuota},
		{"AllOrNothing", allOrNothing},
		{"KeysAndPoliciesApart", keysAndPoliciesApart},
		{"PeekAndReset", peekAndReset},
		{"CostAboveQuota", costAboveQuota},
		{"PlansShareTheFacts", plansShareTheFacts},
		{"LargeQuotaAndCost", largeQuotaAndCost},
		{"InvalidQuestions", invalidQuestions},
		{"LongestKeepHolds", longestKeepHolds},
		{"OldestUnitsAreTrimmed", oldestUnitsAreTrimmed},
		{"Settle", settlesWhatIsWhole},
		{"Log", listsTheWindow},
		{"Merge", mergesOnce},
		{"Bookings", bookingsCount},
		{"BookingsAgain", bookingsAgain},
		{"Overrides", keepsOverrides},
		{"OverridesBound", boundsOverrides},
		{"OverridesOracle", overridesAgainstOracle},
		{"ShadowsTrim", shadowsTrim},
		{"ConcurrentExactly", concurrentExactly},
		{"Oracle", againstOracle},
		{"BatchOracle", batchesAgainstOracle},
		{"Joint", jointConcurrently},
		{"JointOracle", jointAgainstOracle},
		{"JointBookings", jointBookings},
		{"JointCosts", jointCosts},
		{"JointCostsConcurrently", jointCostsConcurrently},
		{"JointInvalidQuestions", invalidJointQuestions},
		{"UpTo", grantsWhatIsLeft},
		{"UpToLeast", grantsTheLeast},
		{"UpToConcurrently", grantsConcurrently},
		{"JointUpTo", jointGrants},
		{"JointUpToConcurrently", jointGrantsConcurrently},
		{"Slots", slotsAreHeld},
		{"SlotsOracle", slotsAgainstOracle},
		{"SlotsConcurrently", slotsConcurrently},
		{"AlgorithmBoundary", algorithmBoundary},
		{"AlgorithmSequences", algorithmSequences},
		{"AlgorithmAtTheEdge", algorithmAtTheEdge},
		{"AlgorithmCosts", algorithmCosts},
		{"AlgorithmQuotaChanges", algorithmQuotaChanges},
		{"AlgorithmsApart", algorithmsApart},
		{"AlgorithmsConcurrently", algorithmsConcurrently},
		{"CalendarPeriods", calendarPeriods},
		{"JointAlgorithms", jointAlgorithms},
		{"JointAlgorithmPolicy", jointAlgorithmPolicy},
		{"JointAlgorithmsConcurrently", jointAlgorithmsConcurrently},
		{"AlgorithmsOracle", algorithmsAgainstOracle},
		{"JointAlgorithmsOracle", jointAlgorithmsAgainstOracle},
	} {
		c.Run(t, test.name, func(t *testing.T) {
			if c.OneLimit && needsMore[test.name] {
				t.Skip("the store has one limit for each log, and takes of one unit")
			}
			test.f(t, c)
		})
	}
}

// needsMore has the cases with costs, with several limits on a log, or with limits that vary.
var needsMore = map[string]bool{
	"AllOrNothing": true, "CostAboveQuota": true, "PlansShareTheFacts": true, "LargeQuotaAndCost": true,
	"LongestKeepHolds": true, "OldestUnitsAreTrimmed": true, "Settle": true, "Log": true, "Merge": true,
	"UpTo": true, "UpToLeast": true, "UpToConcurrently": true, "JointUpTo": true, "JointUpToConcurrently": true,
	"JointCosts": true, "JointCostsConcurrently": true,
}

// 5 in 10 s, a request a second for a minute: 5 pass, 5 do not, and so on.
// Denied ones are free: otherwise the sixth would keep the rest out.
func classicSequence(t *testing.T, c StoreConfig) {
	store, advance := c.New(t)
	l := limiter(t, store, core.Limit{Quota: 5, Window: 10 * time.Second})
	allowed := 0
	for i := range 60 {
		d := allow(t, l, "k", 1)
		if want := i%10 < 5; d.Allowed != want {
			t.Errorf("second %d: allowed %v, want %v", i, d.Allowed, want)
		}
		if d.Allowed {
			allowed++
		}
		advance(time.Second)
	}
	if allowed != 30 {
		t.Errorf("%d of 60 allowed, want 30", allowed)
	}
}

func exactBoundary(t *testing.T, c StoreConfig) {
	store, advance := c.New(t)
	l := limiter(t, store, core.Limit{Quota: 3, Window: 1500 * time.Millisecond})
	for range 3 { // all at the same instant
		if d := allow(t, l, "k", 1); !d.Allowed {
			t.Fatal("denied within the quota")
		}
	}
	advance(1500*time.Millisecond - time.Microsecond)
	d := allow(t, l, "k", 1)
	if d.Allowed || d.RetryAfter != time.Microsecond {
		t.Errorf("1us before the window ends: allowed %v, retry after %v, want a denial of 1us",
			d.Allowed, d.RetryAfter)
	}
	advance(d.RetryAfter)
	for i := range 4 {
		if d := allow(t, l, "k", 1); d.Allowed != (i < 3) {
			t.Errorf("request %d after exactly one window: allowed %v", i+1, d.Allowed)
		}
	}
}

func pollingKeepsItsQuota(t *testing.T, c StoreConfig) {
	store, advance := c.New(t)
	const quota, window, step = 5, 2 * time.Second, 150 * time.Millisecond
	l := limiter(t, store, core.Limit{Quota: quota, Window: window})
	var admitted []time.Duration
	var now time.Duration
	for ; now < 20*window; now += step {
		if allow(t, l, "k", 1).Allowed {
			admitted = append(admitted, now)
		}
		advance(step)
	}
	for i, from := range admitted {
		n := 0
		for _, at := range admitted[i:] {
			if at < from+window {
				n++
			}
		}
		if n > quota {
			t.Errorf("%d admitted in a window that begins at %v, the quota is %d", n, from, quota)
		}
	}
	// A place is taken at the first poll after it is free: at most one step late.
	if least := int(now/(window+step)) * quota; len(admitted) < least {
		t.Errorf("%d admitted in %v of polling, want at least %d", len(admitted), now, least)
	}
}

func allOrNothing(t *testing.T, c StoreConfig) {
	store, advance := c.New(t)
	l := limiter(t, store, core.Limits{
		{Name: "hour", Quota: 4, Window: time.Hour}, // not in the order of their windows
		{Name: "second", Quota: 2, Window: time.Second},
	})
	want := func(cost int, allowed bool, remaining int, retry time.Duration, violated ...string) {
		t.Helper()
		d := allow(t, l, "k", cost)
		if d.Allowed != allowed || d.Remaining != remaining || d.RetryAfter != retry ||
			!slices.Equal(d.Violated, violated) {
			t.Errorf("cost %d: allowed %v, remaining %d, retry %v, violated %v; want %v, %d, %v, %v",
				cost, d.Allowed, d.Remaining, d.RetryAfter, d.Violated, allowed, remaining, retry, violated)
		}
	}
	want(1, true, 1, 0)
	advance(400 * time.Millisecond)
	want(1, true, 0, 0)
	for range 10 { // the hour must not be charged for these
		want(1, false, 0, 600*time.Millisecond, "second")
	}
	advance(600 * time.Millisecond)
	want(2, false, 1, 400*time.Millisecond, "second")
	advance(400 * time.Millisecond)
	want(2, true, 0, 0)
	want(2, false, 0, time.Hour-time.Second, "hour", "second")
	advance(time.Second)
	want(1, false, 0, time.Hour-2400*time.Millisecond, "hour")
}

func keysAndPoliciesApart(t *testing.T, c StoreConfig) {
	store, _ := c.New(t)
	a := limiter(t, store, core.PerMinute(1))
	b := limiter(t, store, core.PerMinute(2))
	named := limiter(t, store, core.PerMinute(1), core.WithName("other"))
	for _, key := range []string{"x", "y", "a:b", "a", "{x}", "}", "x\x00", "\r\n", "é", string(make([]byte, 8192))} {
		for i, l := range []*core.Limiter{a, b, named} {
			if d := allow(t, l, key, 1); !d.Allowed {
				t.Errorf("limiter %d, key %.20q: denied for what another key or policy has used", i, key)
			}
		}
		if d := allow(t, a, key, 1); d.Allowed {
			t.Errorf("key %.20q: allowed twice in a minute", key)
		}
	}
}

func peekAndReset(t *testing.T, c StoreConfig) {
	store, _ := c.New(t)
	l := limiter(t, store, core.PerMinute(2))
	peek := func(allowed bool, remaining int) {
		t.Helper()
		d, err := l.Peek(t.Context(), "k")
		if err != nil || d.Allowed != allowed || d.Remaining != remaining {
			t.Errorf("peek: allowed %v, remaining %d, error %v; want %v, %d",
				d.Allowed, d.Remaining, err, allowed, remaining)
		}
	}
	if err := l.Reset(t.Context(), "nobody"); err != nil {
		t.Errorf("reset of an unknown key: %v", err)
	}
	peek(true, 2)
	peek(true, 2)
	if c.OneLimit {
		allow(t, l, "k", 1)
		allow(t, l, "k", 1)
	} else {
		allow(t, l, "k", 2)
	}
	peek(false, 0)
	if err := l.Reset(t.Context(), "k"); err != nil {
		t.Errorf("reset: %v", err)
	}
	peek(true, 2)
}

func costAboveQuota(t *testing.T, c StoreConfig) {
	store, _ := c.New(t)
	l := limiter(t, store, core.PerMinute(5))
	d, err := l.AllowN(t.Context(), "k", 6)
	if !errors.Is(err, core.ErrCostExceedsQuota) || d.Allowed || d.RetryAfter != 0 || d.Remaining != 5 || !d.Never() {
		t.Errorf("cost 6 of 5: %+v, %v", d, err)
	}
	if err := d.Err(); !errors.Is(err, core.ErrCostExceedsQuota) {
		t.Errorf("Err() is %v, want ErrCostExceedsQuota", err)
	}
	if d := allow(t, l, "k", 5); !d.Allowed {
		t.Error("the impossible request was charged")
	}
}

// A request under a short window must not purge what a longer one will ask for.
func plansShareTheFacts(t *testing.T, c StoreConfig) {
	store, advance := c.New(t)
	plan := core.PerHour(10)
	l := limiter(t, store, core.LimitBy(func(context.Context) core.Limits { return core.Limits{plan} }))
	ask := func(limit core.Limit, allowed bool, used int) {
		t.Helper()
		plan = limit
		if d := allow(t, l, "k", 1); d.Allowed != allowed || d.Used != used {
			t.Errorf("%v: allowed %v, used %d; want %v, %d", limit, d.Allowed, d.Used, allowed, used)
		}
	}
	ask(core.PerHour(10), true, 0)
	for i := range 4 {
		advance(2 * time.Second)
		ask(core.PerSecond(1), true, 0)
		ask(core.PerSecond(1), false, 1)
		ask(core.PerMinute(100), true, 2*i+2)
	}
	ask(core.PerHour(10), true, 9)
	ask(core.PerHour(10), false, 10)
	ask(core.PerHour(11), true, 10)
	ask(core.PerHour(5), false, 11)
}

func largeQuotaAndCost(t *testing.T, c StoreConfig) {
	store, advance := c.New(t)
	const quota, cost = 100_000, 10_000
	l := limiter(t, store, core.Limit{Quota: quota, Window: 365 * 24 * time.Hour})
	for i := range quota / cost {
		if d := allow(t, l, "k", cost); !d.Allowed || d.Remaining != quota-(i+1)*cost {
			t.Fatalf("take %d: allowed %v, remaining %d", i+1, d.Allowed, d.Remaining)
		}
		advance(time.Hour)
	}
	if d := allow(t, l, "k", cost); d.Allowed || d.RetryAfter != (365*24-10)*time.Hour || d.Used != quota {
		t.Errorf("a full log: allowed %v, retry after %v, used %d", d.Allowed, d.RetryAfter, d.Used)
	}
	advance((365*24 - 10) * time.Hour)
	if d := allow(t, l, "k", cost); !d.Allowed || d.Remaining != 0 {
		t.Errorf("after the first has left: allowed %v, remaining %d", d.Allowed, d.Remaining)
	}
}

func concurrentExactly(t *testing.T, c StoreConfig) {
	exactlyTheQuota(t, c, testlen.Of(10, 50), testlen.Of(200, 1000), func(l *core.Limiter) int {
		d, err := l.Allow(t.Context(), "k")
		if err != nil {
			t.Error(err)
		}
		if d.Allowed {
			return 1
		}
		return 0
	})
}

// exactlyTheQuota checks that callers who ask at once, each that often, get all of a quota and no more. ask returns how
// many units it got.
func exactlyTheQuota(t *testing.T, c StoreConfig, each, quota int, ask func(*core.Limiter) int) {
	store, _ := c.New(t)
	const callers = 64
	limits := core.Limits{core.PerMinute(quota), core.PerHour(quota + 1)}
	if c.OneLimit {
		limits = limits[:1]
	}
	l := limiter(t, store, limits)
	var units atomic.Int64
	var wg sync.WaitGroup
	for range callers {
		wg.Go(func() {
			for range each {
				units.Add(int64(ask(l)))
			}
		})
	}
	wg.Wait()
	if units.Load() != int64(quota) {
		t.Errorf("%d units admitted for %d requests, want %d", units.Load(), callers*each, quota)
	}
}
