package redisstore_test

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/coretest"
	"github.com/sashlimit/sash/core/store"
)

// weighed is a log with weights.
type weighed struct {
	t     *testing.T
	rdb   *redis.Client
	clock clock
	store store.Full
	take  store.Take
}

func newWeighed(t *testing.T, quota int) *weighed {
	rdb := start(t)
	c := newClock(rdb)
	w := &weighed{t: t, rdb: rdb, clock: c, store: full(newStore(c))}
	w.take.Key = keysOf(t, 1, "weighed")[0]
	w.take.Plan = planOf(core.Limits{{Quota: quota, Window: 10 * time.Second}}, store.Plan{Bound: quota})
	return w
}

// admit has the log admit a take. Ids that end with a byte of 0 to 0xf0 by 0x10 may end blocks.
func (w *weighed) admit(id uint64, cost int) {
	w.t.Helper()
	w.take.ID, w.take.Cost = id, cost
	mustTake(w.t, w.store, w.take)
	w.clock.Advance(time.Millisecond)
}

func (w *weighed) settle(id uint64, cost int) {
	w.t.Helper()
	if err := w.store.Settle(w.t.Context(), store.Settlement{Key: w.take.Key, ID: id, Cost: cost}); err != nil {
		w.t.Fatal(err)
	}
}

// used is how many units the window of a plan holds.
func (w *weighed) used(plan *store.Plan) int {
	w.t.Helper()
	peek := store.Take{Key: w.take.Key, Plan: plan, ID: 0xff, Cost: 1, Mode: store.ModePeek}
	a, err := coretest.Take(w.t.Context(), w.store, peek)
	if err != nil {
		w.t.Fatal(err)
	}
	return a.State[0].Used
}

func (w *weighed) members() int { return int(w.rdb.ZCard(w.t.Context(), stored(w.take.Key)).Val()) }

// A take of which a part was trimmed and that is then sent again has two entries with its id, perhaps in one pack.
func TestTrimmedTakeSentAgain(t *testing.T) {
	const x = 0x77000001
	w := newWeighed(t, 1000)
	oracle := new(coretest.FakeStore)
	compare := func() {
		t.Helper()
		peek := w.take
		peek.ID, peek.Cost, peek.Mode = 0xff, 900, store.ModePeek
		got, err := coretest.Take(t.Context(), w.store, peek)
		if want, _ := coretest.Take(t.Context(), oracle, peek); err != nil || got != want {
			t.Errorf("got  %+v, %v\nwant %+v", got, err, want)
		}
	}
	take := func(id uint64, cost int, mode store.Mode) {
		t.Helper()
		w.take.ID, w.take.Cost, w.take.Mode = id, cost, mode
		if _, err := coretest.Take(t.Context(), w.store, w.take); err != nil {
			t.Fatal(err)
		}
		if _, err := coretest.Take(t.Context(), oracle, w.take); err != nil {
			t.Fatal(err)
		}
		w.clock.Advance(time.Millisecond)
		oracle.Advance(time.Millisecond)
	}
	settle := func(id uint64, cost int) {
		t.Helper()
		w.settle(id, cost)
		if err := oracle.Settle(t.Context(), store.Settlement{Key: w.take.Key, ID: id, Cost: cost}); err != nil {
			t.Fatal(err)
		}
	}
	take(x, 500, store.ModeCharge)
	for i := range uint64(100) { // packs are for long logs
		take(0x10000001+i<<16, 4, store.ModeCharge)
	}
	take(0x88000001, 200, store.ModeChargeDenied) // a part of x is trimmed
	settle(0x88000001, 2)
	take(x, 150, store.ModeCharge)
	older := store.MergeRequest{
		Key: w.take.Key, Keep: 10 * time.Second,
		Entries: []store.Entry{{ID: 0x99000000, Age: 9 * time.Second, Cost: 2}},
	}
	if err := w.store.Merge(t.Context(), older); err != nil { // it ends the oldest block, which is not packed
		t.Fatal(err)
	}
	if err := oracle.Merge(t.Context(), older); err != nil {
		t.Fatal(err)
	}
	for i := range uint64(100) { // so that both entries of x are in one pack
		settle(0x10000001+i<<16, 1)
	}
	take(0xaa000000, 2, store.ModeCharge)
	compare()
	settle(x, 2)
	compare()
}

// Sums of blocks whose weights were all given back leave the log.
func TestBlocksWithoutWeightsLeave(t *testing.T) {
	for name, left := range map[string]int{"nothing is left": 0, "one unit is left": 1} {
		t.Run(name, func(t *testing.T) {
			w := newWeighed(t, 100_000)
			for id := range uint64(300) {
				w.admit(id<<16, 900)
				w.settle(id<<16, left)
			}
			if left == 0 {
				if n := w.members(); n > 0 {
					t.Errorf("%d members of an empty log", n)
				}
				return
			}
			w.clock.Advance(10 * time.Second)
			w.admit(1, 2)
			if n := w.members(); n > 5 {
				t.Errorf("%d members of a log with one entry", n)
			}
		})
	}
}

// Where very many entries have expired at once, a take removes a part of them.
func TestExpiredCostsLeaveInParts(t *testing.T) {
	w := newWeighed(t, 100_000)
	for id := range uint64(9000) {
		w.take.ID, w.take.Cost = id<<16|id%64, 2 // one in 64 ends a block
		mustTake(t, w.store, w.take)
		w.clock.Advance(time.Microsecond)
	}
	w.clock.Advance(10 * time.Second)
	w.admit(2, 2)
	if n := w.members(); n < 4000 {
		t.Errorf("%d members after one take, want thousands", n)
	}
	for id := uint64(3); w.members() > 10; id++ {
		if id > 9 {
			t.Fatalf("%d members after %d takes", w.members(), id)
		}
		w.admit(id, 2)
	}
}

// An entry from the future moves to the present also where the next take could be admitted at once.
func TestCostsWhenTheClockStepsBack(t *testing.T) {
	w := newWeighed(t, 100)
	w.admit(1, 5)
	w.clock.Advance(-3 * time.Second)
	w.admit(2, 5)
	w.clock.Advance(10 * time.Second)
	if n := w.used(w.take.Plan); n != 0 {
		t.Errorf("%d units used a window later, want none", n)
	}
}

// A take that keeps entries for longer than its window lasts says so to the log.
func TestCostsKeptLonger(t *testing.T) {
	const window = 10 * time.Second
	plan := func(window, keep time.Duration) *store.Plan {
		return planOf(core.Limits{{Quota: core.MaxQuota, Window: window}}, store.Plan{Bound: core.MaxQuota, Keep: keep})
	}
	w := newWeighed(t, core.MaxQuota)
	w.take.Plan = plan(window, window)
	w.admit(1, 5)
	w.take.Plan = plan(window, 2*window)
	w.admit(2, 5)
	w.clock.Advance(window)
	w.admit(3, 5)
	if n := w.used(plan(2*window, 2*window)); n != 15 {
		t.Errorf("%d units in the longer window, want 15", n)
	}
}

// Where one entry has expired, a take is admitted up to the quota and not beyond.
func TestCostsUpToTheQuota(t *testing.T) {
	const window = 10 * time.Second
	w := newWeighed(t, 10)
	for i, step := range []struct {
		cost    int
		wait    time.Duration
		allowed bool
	}{
		{10, window, true},
		{5, window / 2, true}, // the only one has expired
		{1, 0, true},
		{4, window / 2, true},
		{6, 0, false}, // the first of three has expired
		{5, window / 2, true},
		{6, 0, false},
		{5, 0, true},
	} {
		w.take.ID, w.take.Cost = uint64(i+1), step.cost
		if a, err := coretest.Take(t.Context(), w.store, w.take); err != nil || a.Allowed != step.allowed {
			t.Fatalf("take %d with cost %d: %+v, %v; want allowed: %v", i+1, step.cost, a, err, step.allowed)
		}
		w.clock.Advance(step.wait)
	}
}
