package redisstore_test

import (
	"encoding/binary"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/coretest"
	"github.com/sashlimit/sash/core/internal/testlen"
	"github.com/sashlimit/sash/core/redisstore"
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

// admit has the log admit a take.
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

// A take of which a part was trimmed and that is then sent again has two entries with its id.
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
	for i := range uint64(100) {
		take(0x10000001+i<<16, 4, store.ModeCharge)
	}
	take(0x88000001, 200, store.ModeChargeDenied) // a part of x is trimmed
	settle(0x88000001, 2)
	take(x, 150, store.ModeCharge)
	older := store.MergeRequest{
		Key: w.take.Key, Keep: 10 * time.Second,
		Entries: []store.Entry{{ID: 0x99000000, Age: 9 * time.Second, Cost: 2}},
	}
	if err := w.store.Merge(t.Context(), older); err != nil {
		t.Fatal(err)
	}
	if err := oracle.Merge(t.Context(), older); err != nil {
		t.Fatal(err)
	}
	for i := range uint64(100) {
		settle(0x10000001+i<<16, 1)
	}
	take(0xaa000000, 2, store.ModeCharge)
	compare()
	settle(x, 2)
	compare()
}

// Blocks whose entries were all given back leave the log.
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
	testlen.SkipRace(t)
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

// An entry from the future moves to where bookings are also where the next take could be admitted at once.
func TestCostsWhenTheClockStepsBack(t *testing.T) {
	w := newWeighed(t, 100)
	w.admit(1, 5)
	w.clock.Advance(-3 * time.Second)
	w.admit(2, 5)
	w.clock.Advance(10*time.Second + store.LongestLease)
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

// A take is admitted up to the quota and not beyond, also where one entry has expired.
func TestCostsUpToTheQuota(t *testing.T) {
	const window = 10 * time.Second
	w := newWeighed(t, 10)
	for i, step := range []struct {
		cost    int
		wait    time.Duration
		allowed bool
	}{
		{7, time.Millisecond, true},
		{4, window, false},
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

// The TTL of a log with weights is set again before an entry could outlive it, and not by each take.
func TestCostsRenewTheTTL(t *testing.T) {
	w := newWeighed(t, 100_000)
	w.admit(1, 2)
	for i, renews := range []bool{false, true} {
		id := uint64(i + 2)
		w.clock.Advance(500 * time.Millisecond)
		w.rdb.PExpire(t.Context(), stored(w.take.Key), time.Second)
		w.admit(id, 2)
		if ttl := w.rdb.PTTL(t.Context(), stored(w.take.Key)).Val(); ttl > 2*time.Second != renews {
			t.Errorf("take %d: a TTL of %v; want it renewed: %v", id, ttl, renews)
		}
	}
}

// An entry that is renewed keeps its weight.
func TestRenewedEntriesKeepTheirWeights(t *testing.T) {
	w := newWeighed(t, 1000)
	for id := range uint64(20) {
		w.admit(100-id, 10+int(id))
	}
	renewal := store.Renewal{Key: w.take.Key, IDs: []uint64{95, 100, 7, 82}, Keep: w.take.Plan.Keep}
	if err := w.store.(store.Renewer).Renew(t.Context(), renewal); err != nil {
		t.Fatal(err)
	}
	want := map[string]int{idText(7): 0}
	for id := range uint64(20) {
		want[idText(100-id)] = 9 + int(id)
	}
	if got := weightsOf(t, w.rdb, stored(w.take.Key)); !maps.Equal(got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
}

func idText(id uint64) string { return string(binary.BigEndian.AppendUint64(nil, id)) }

// Takes of one log that have different costs and go together are recorded at one instant, in any order of their ids.
func TestCostsOfOneInstant(t *testing.T) {
	w, oracle := newWeighed(t, 100_000), new(coretest.FakeStore)
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 0))
	for batch := range uint64(60) {
		takes := make([]store.Take, 1+r.IntN(40))
		for i := range takes {
			takes[i] = w.take
			takes[i].ID, takes[i].Cost = 1<<50|batch<<10|uint64(i), 1+r.IntN(200)
			if batch%4 == 0 {
				takes[i].ID = r.Uint64()
			}
		}
		got, err := redisstore.TakeTogether(t.Context(), w.store, true, takes)
		if err != nil {
			t.Fatal(err)
		}
		for i := range takes {
			if want, err := coretest.Take(t.Context(), oracle, takes[i]); err != nil || got[i] != want {
				t.Fatalf("seed %d, batch %d, take %d: %+v, want %+v, %v", seed, batch, i, got[i], want, err)
			}
		}
		weightsOf(t, w.rdb, stored(w.take.Key))
		step := time.Duration(r.IntN(400)) * time.Millisecond
		w.clock.Advance(step)
		oracle.Advance(step)
	}
}

// A take behind a group of its instant keeps its own weight, also if its id is one of those in between.
func TestCostBehindAGroup(t *testing.T) {
	w := newWeighed(t, 100)
	var takes []store.Take
	for _, take := range []store.Take{{ID: 1, Cost: 5}, {ID: 2, Cost: 3}, {ID: 9, Cost: 3}, {ID: 4, Cost: 7}} {
		take.Key, take.Plan = w.take.Key, w.take.Plan
		takes = append(takes, take)
	}
	if _, err := redisstore.TakeTogether(t.Context(), w.store, true, takes); err != nil {
		t.Fatal(err)
	}
	want := map[string]int{idText(1): 4, idText(2): 2, idText(9): 2, idText(4): 6}
	if got := weightsOf(t, w.rdb, stored(w.take.Key)); !maps.Equal(got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
	w.settle(9, 1)
	if n := w.used(w.take.Plan); n != 16 {
		t.Errorf("%d units used, want 16", n)
	}
}

// A denial writes nothing, also where entries with weights have expired.
func TestFullCostsDenyWhileWritesAreRefused(t *testing.T) {
	w := newWeighed(t, 10)
	w.admit(1, 5)
	w.clock.Advance(5 * time.Second)
	w.admit(2, 5)
	w.clock.Advance(5 * time.Second)
	if err := w.rdb.ConfigSet(t.Context(), "min-replicas-to-write", "3").Err(); err != nil {
		t.Fatal(err)
	}
	w.take.ID, w.take.Cost = 3, 6
	if a, err := coretest.Take(t.Context(), w.store, w.take); err != nil || a.Allowed || a.State[0].Used != 5 {
		t.Errorf("%+v, %v; want a denial beside 5 units", a, err)
	}
}

// An entry that had no weight gets one beside entries of its instant that have some.
func TestSettledBesideEntriesOfItsInstant(t *testing.T) {
	w := newWeighed(t, 100)
	for id, cost := range []int{1, 2} {
		w.take.ID, w.take.Cost = uint64(id), cost
		mustTake(t, w.store, w.take)
	}
	w.settle(0, 3)
	want := map[string]int{idText(0): 2, idText(1): 1}
	if got := weightsOf(t, w.rdb, stored(w.take.Key)); !maps.Equal(got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
}

// A take that is sent again later is found by its id, and changes no sum.
func TestCostsSentAgainLater(t *testing.T) {
	w := newWeighed(t, 100)
	for _, id := range []uint64{1, 2, 1} {
		w.admit(id, 5)
	}
	if n := w.used(w.take.Plan); n != 10 {
		t.Errorf("%d units used, want 10", n)
	}
	weightsOf(t, w.rdb, stored(w.take.Key))
}

// Where one of several logs denies, the answer about one whose entries have expired does not count them.
func TestJointCostsBesideExpiredOnes(t *testing.T) {
	c, oracle := newClock(start(t)), new(coretest.FakeStore)
	s, keys := redisstore.Single(newStore(c)), keysOf(t, 2, "joint")
	takes := make([]store.Take, 2)
	for i, window := range []time.Duration{time.Second, 10 * time.Second} {
		takes[i] = store.Take{Key: keys[i], Plan: planOf(core.Limits{{Quota: 10, Window: window}}, store.Plan{})}
	}
	for id, cost := range []int{5, 6, 4} {
		for i := range takes {
			takes[i].ID, takes[i].Cost = uint64(id), cost+i
		}
		got, want := make([]store.Answer, 2), make([]store.Answer, 2)
		if err := coretest.TakeAll(t.Context(), oracle, takes, want); err != nil {
			t.Fatal(err)
		}
		if err := coretest.TakeAll(t.Context(), s, takes, got); err != nil || !slices.Equal(got, want) {
			t.Errorf("cost %d, %v:\ngot  %+v\nwant %+v", cost, err, got, want)
		}
		c.Advance(2 * time.Second)
		oracle.Advance(2 * time.Second)
	}
}
